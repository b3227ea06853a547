def parts(workspace): return []
