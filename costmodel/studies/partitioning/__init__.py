"""Which layers the stages of a pipeline hold: PipeDream's partitioner, and transformers split unevenly."""

from costmodel.studies.partitioning.pipedream import partition
from costmodel.studies.partitioning.result import Partition, Stage
from costmodel.studies.partitioning.transformers import StageSplit, balanced_stages, transformer_chain

__all__ = ["Partition", "Stage", "StageSplit", "balanced_stages", "partition", "transformer_chain"]
