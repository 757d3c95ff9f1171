"""The two theorems of the paper, their closed forms, and how good the approximations are.

The theorems are about a GRAND with two classes and one output layer, Z̃ = sigmoid(ĀX̃·W). Write
a = ĀX·W for the logits without a perturbation, z = sigmoid(a), and p = Ā(X̃ - X)·W for what the
perturbation adds to them. Theorem 1 says E[L_con] ≈ R^c = Σ_i z_i²(1-z_i)² Var(p_i), over all nodes
and with S = 2 augmentations; Theorem 2 says E[L_sup] - L_org ≈ R^q = ½ Σ_i z_i(1-z_i) Var(p_i),
over the labelled nodes. Both are the first term of an expansion in p.

Size of a perturbation
    X̃ = X ⊙ (1 + t·ξ) with ξ = ε/(1-δ) - 1. The size t is 1 for the paper's perturbations, and δ
    stays fixed. Then p is proportional to t, and z does not depend on t.

Rate of the error
    With σ', σ'', σ''' the derivatives of the sigmoid at a_i, per node,

    - E[L_con] = Var(σ(a+p)) = σ'² E p² + σ'σ'' E p³ + ¼σ''² Var(p²) + ⅓σ'σ''' E p⁴ + O(t⁵),
    - E[L_sup] - L_org = ½σ' E p² + ⅙σ'' E p³ + 1/24 σ''' E p⁴ + O(t⁵),

    because labels enter through -y·p alone, whose mean is zero. The first terms are t²R^c and
    t²R^q. E ξ³ = δ(2δ-1)/(1-δ)² is zero at δ = ½ alone, where ξ is ±1 with equal probability and
    all odd moments vanish. So the relative error is O(t²) at δ = ½ and O(t) at any other δ. This
    holds for both theorems, and for DropNode and dropout alike: they differ in the coefficients of
    p, not in ξ.

Two other sizes say less. With δ → 0 at t = 1, all moments of ξ are of order δ, as the variance is:
the relative error tends to a constant that is not zero. With W scaled by s → 0, z tends to ½, where
σ'' is zero: the relative error is O(s²) for every δ, because the model is nearly linear there.

Everything is computed in float64.
"""

from dropnode.analysis.theory.closed_forms import (
    LinearGrand,
    consistency_regulariser,
    supervised_regulariser,
    variance,
)
from dropnode.analysis.theory.monte_carlo import (
    Estimates,
    expected_consistency_loss,
    expected_supervised_excess,
)
from dropnode.analysis.theory.rates import Fit, fit_exponent, promised_exponent, theory_curves

__all__ = [
    "Estimates",
    "Fit",
    "LinearGrand",
    "consistency_regulariser",
    "expected_consistency_loss",
    "expected_supervised_excess",
    "fit_exponent",
    "promised_exponent",
    "supervised_regulariser",
    "theory_curves",
    "variance",
]
