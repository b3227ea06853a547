"""An HTTP server for translation and alignment; requests of several clients are computed in one batch.

Only `application` imports Starlette and uvicorn.
"""

from nmtalign.errors import UsageError


def need_server() -> None:
    """Raises UsageError if Starlette or uvicorn is missing; it names what to install."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError('a server needs Starlette and uvicorn: pip install "nmtalign[serve]"') from None
