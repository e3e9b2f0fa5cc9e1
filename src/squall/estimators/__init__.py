"""The scikit-learn face: estimators, transformers, pipelines, saving."""
