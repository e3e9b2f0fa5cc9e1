"""Quality of a classifier on held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from squall.data.dataset import Dataset
from squall.estimators.logistic import labels_of


def held_out_quality(model: Any, data: Dataset) -> dict[str, str]:
    """Log-loss, accuracy and AUC, as text."""
    truth, _ = labels_of(data)
    probabilities = model.predict_proba(data)
    classes = model.classes_
    positive = truth == classes[1]
    quality = {
        "log-loss": f"{log_loss(positive, probabilities[:, 1], labels=[False, True]):.4f}",
        "accuracy": f"{np.mean(classes[(probabilities[:, 1] > 0.5).astype(int)] == truth):.4f}",
    }
    if 0 < positive.sum() < len(positive):
        quality["AUC"] = f"{roc_auc_score(positive, probabilities[:, 1]):.4f}"
    return quality
