"""Consensus ADMM: cores without I/O.

Minimise Σ_w f_w(x) + l1·‖x‖₁ + l2/2·‖x‖² (penalties on the first coordinates only) over W workers, each
with an f_w of its own.  In the metric M (symmetric, positive definite), with scaled duals u_w::

    x_w = argmin f_w(x) + ½‖x − z + u_w‖²_M              each worker's own: `subproblem`
    x̂_w = α·x_w + (1 − α)·z                              over-relaxation
    z⁺  = argmin h(z) + W/2·‖z − mean_w(x̂_w + u_w)‖²_M    from sums alone: `metrics`
    u_w⁺ = u_w + x̂_w − z⁺

`participant` is one worker's part: it gives out one array a round, and goes on with the sum of all workers'
arrays (`agreement` has what they say).  Everything that all have in common (z, the metric, what is decided)
is computed by each from the same sums, in `admm`, so there is no master.

Sources: Boyd et al., "Distributed optimization and statistical learning via the alternating direction
method of multipliers", 2011 (§3.3 stopping, §3.4.3 over-relaxation, §7.1 consensus); Aytekin &
Johansson, "Harnessing the power of serverless runtimes for large-scale optimization", 2019.
"""
