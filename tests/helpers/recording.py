"""A recorder for graphs on a CPU."""


class Again:
    """Records by keeping the work, which a replay does again; `spoil` may change what a replay does."""

    def __init__(self, spoil=None):
        self.recorded, self.warmed, self.spoil = 0, 0, spoil

    def warm_up(self, work):
        self.warmed += 1
        work()

    def record(self, work):
        self.recorded += 1
        return work if self.spoil is None else self.spoil(work)
