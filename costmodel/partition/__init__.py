"""Which layers the stages of a pipeline hold: PipeDream's partitioner."""

from costmodel.partition.pipedream import partition
from costmodel.partition.result import Partition, Stage

__all__ = ["Partition", "Stage", "partition"]
