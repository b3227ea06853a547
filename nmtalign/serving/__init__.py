"""An HTTP server, which computes requests of several clients in one batch; only `application` imports Starlette."""
