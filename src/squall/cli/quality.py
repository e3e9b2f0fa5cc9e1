"""Quality of a model on held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score

from squall.data.dataset import Dataset
from squall.estimators.targets import labels_of


def held_out_quality(model: Any, data: Dataset) -> dict[str, str]:
    """As text: perplexity; or log-loss, accuracy and, of two classes, AUC; or RMSE, MAE and R²."""
    if hasattr(model, "perplexity"):
        return {"perplexity": f"{model.perplexity(data):,.1f}"}
    truth, _ = labels_of(data)
    if not hasattr(model, "predict_proba"):
        return _of_numbers(truth.astype(np.float64), model.predict(data))
    probabilities = model.predict_proba(data)
    classes = model.classes_
    quality = {
        "log-loss": f"{log_loss(truth, probabilities, labels=classes):.4f}",
        "accuracy": f"{np.mean(classes[probabilities.argmax(axis=1)] == truth):.4f}",
    }
    if len(classes) == 2 and len(np.unique(truth)) == 2:
        quality["AUC"] = f"{roc_auc_score(truth == classes[1], probabilities[:, 1]):.4f}"
    return quality


def _of_numbers(truth: Any, predicted: Any) -> dict[str, str]:
    quality = {
        "RMSE": f"{np.sqrt(np.mean(np.square(predicted - truth))):.4g}",
        "MAE": f"{mean_absolute_error(truth, predicted):.4g}",
    }
    if len(np.unique(truth)) > 1:
        quality["R²"] = f"{r2_score(truth, predicted):.4f}"
    return quality
