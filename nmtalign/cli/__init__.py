"""The command line: one thin file a subcommand; the only place for typer and rich."""
