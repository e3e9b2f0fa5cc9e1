"""Quality of a classifier on held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from squall.data.dataset import Dataset
from squall.estimators.targets import labels_of


def held_out_quality(model: Any, data: Dataset) -> dict[str, str]:
    """Log-loss, accuracy and, of two classes, AUC, as text."""
    truth, _ = labels_of(data)
    probabilities = model.predict_proba(data)
    classes = model.classes_
    quality = {
        "log-loss": f"{log_loss(truth, probabilities, labels=classes):.4f}",
        "accuracy": f"{np.mean(classes[probabilities.argmax(axis=1)] == truth):.4f}",
    }
    if len(classes) == 2 and len(np.unique(truth)) == 2:
        quality["AUC"] = f"{roc_auc_score(truth == classes[1], probabilities[:, 1]):.4f}"
    return quality
