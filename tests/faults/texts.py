def parts(workspace):
    return []
