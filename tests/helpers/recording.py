"""A recorder for graphs on a CPU."""


class Again:
    """Records by keeping the work, which a replay does again; `spoil` may change what a replay does."""

    def __init__(self, spoil=None):
        self.recorded, self.spoil = 0, spoil

    def record(self, work):
        self.recorded += 1
        work()
        return work if self.spoil is None else self.spoil(work)
