"""Few labels on a citation graph: Cora, 20 labelled papers per topic.

Words of a paper and citations between papers tell its topic. GRAND's quick preset, for a few
epochs, stands beside methods that see the citations alone, or that only average words. (The
results of this repository have its preset ``official``, which takes longer.)

    python examples/citation_graph.py
"""

from __future__ import annotations

from dropnode import GrandClassifier, load_dataset

MODELS = {
    "citations alone": GrandClassifier(method="label-propagation"),
    "words, averaged": GrandClassifier(method="logistic"),
    "GRAND": GrandClassifier("fast", learning_rate=0.03, max_epochs=80, random_state=0),
}


def main() -> None:
    """Fit each model and print its test accuracy."""
    graph = load_dataset("cora")
    print(graph)
    for seen, model in MODELS.items():
        model.fit(graph)
        # The test nodes of the published split; their labels were not read before.
        print(f"{seen:16} {100 * model.score(graph):.1f} %")
    shares = model.predict_proba()[2000]
    print(f"paper 2000: {model.classes_[shares.argmax()]}, {shares.max():.2f}")


if __name__ == "__main__":
    main()
