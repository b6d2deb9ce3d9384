"""Where OpenMMLab looks for `type='recallatk.RetrievalRecall'`: mmengine imports `registry` of the package named."""

from __future__ import annotations

from recallatk.extras import import_extra

registry = import_extra("mmengine.registry", "openmmlab", "recallatk.integrations.openmmlab")

METRICS = registry.Registry(
    "metric", parent=registry.METRICS, scope="recallatk", locations=["recallatk.integrations.openmmlab"]
)
