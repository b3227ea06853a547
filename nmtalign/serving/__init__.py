"""An HTTP server for translation and alignment; requests of several clients are computed in one batch.

Only `application` imports Starlette and uvicorn.
"""
