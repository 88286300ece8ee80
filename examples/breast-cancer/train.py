"""Exports a two-class network on breast cancer data from a scikit-learn pipeline.

    python examples/breast-cancer/train.py OUT_DIR

Writes the model folder and three files. `test.csv` has 143 records that the training did not see,
in raw units, with a header line of the features' names. `test_labels.csv` has their labels.
`test_classes.csv` has the results of scikit-learn's `predict`, an index into the labels a line.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from mortonnet.exporter import csv_bytes, export


def main(folder):
    data = load_breast_cancer()
    names = data.target_names[data.target]
    x, x_test, y, y_test = train_test_split(
        data.data, names, test_size=143, random_state=0, stratify=names
    )
    model = make_pipeline(
        StandardScaler(), MLPClassifier((16,), alpha=0.1, max_iter=500, random_state=0)
    ).fit(x, y)

    out = export(model, folder, inputs=x, name="breast-cancer", features=data.feature_names)
    header = ",".join(data.feature_names) + "\n"
    (out / "test.csv").write_bytes(header.encode() + csv_bytes(x_test))
    (out / "test_labels.csv").write_text("".join(label + "\n" for label in y_test))
    classes = np.searchsorted(model.classes_, model.predict(x_test))
    (out / "test_classes.csv").write_bytes(csv_bytes(classes[:, None]))
    right = int((model.predict(x_test) == y_test).sum())
    print(f"scikit-learn: {right} of {len(x_test)}; labels: {', '.join(model.classes_)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
