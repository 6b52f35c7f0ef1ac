/* formula: the element-wise formulas of kernels, written once over a vector type.
 *
 * It is compiled for the vectors of cpu/vec.h (define.h includes both), and for single elements,
 * with `vf` = float, in C, C++ and CUDA (formula_float.h). Define before the include:
 *
 *   FORMULA                       the specifiers of each function
 *   vf                            floats with + - * /
 *   vf_set, vf_fma, vf_sqrt       a constant; a * b + c rounded once; the square root
 *   vf_min, vf_max                the second argument if one is NaN
 *   vf_recip                      1 / x for 2^-126 <= |x| <= 2^126
 *   vf_scale2, vf_power2          p 2^n for integers n: all; from -126 to 127 only
 *
 * Licence: Apache-2.0 */
#ifndef MR_FORMULA_H
#define MR_FORMULA_H

/* ---- exponentials ---- */

/* e^x = 2^n e^r, |r| <= ln(2) / 2, e^r by its series to r^7. The error is below 2 units in the last
 * place; -inf gives 0, NaN stays NaN. The clamps affect only arguments whose result is 0 or inf
 * anyway; max and min keep a NaN because it is their second argument. */
FORMULA vf formula_exp(vf x)
{
    x = vf_min(vf_set(89.0f), vf_max(vf_set(-104.0f), x));
    vf magic = vf_set(12582912.0f), n = vf_fma(x, vf_set(1.44269504f), magic) - magic;
    vf r = vf_fma(n, vf_set(-0.693359375f), x);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_fma(r, vf_set(1.0f / 5040), vf_set(1.0f / 720));
    p = vf_fma(r, p, vf_set(1.0f / 120));
    p = vf_fma(r, p, vf_set(1.0f / 24));
    p = vf_fma(r, p, vf_set(1.0f / 6));
    p = vf_fma(r, p, vf_set(0.5f));
    p = vf_fma(r * r, p, r) + vf_set(1.0f);
    return vf_scale2(p, n);
}

/* 1 / (1 + 2^x) with a relative error below 3e-7 for |x| <= 126; larger |x| count as 126. 2^x = 2^n
 * 2^f, |f| <= 1/2, 2^f by a minimax polynomial (1.1e-7). */
FORMULA vf formula_falling2(vf x)
{
    x = vf_min(vf_set(126.0f), vf_max(vf_set(-126.0f), x));
    vf magic = vf_set(12582912.0f), n = (x + magic) - magic, f = x - n;
    vf p = vf_fma(f, vf_set(1.32647240e-3f), vf_set(9.67151287e-3f));
    p = vf_fma(f, p, vf_set(5.55073375e-2f));
    p = vf_fma(f, p, vf_set(2.40222421e-1f));
    p = vf_fma(f, p, vf_set(6.93146978e-1f));
    p = vf_fma(f, p, vf_set(1.0f));
    return vf_recip(vf_set(1.0f) + vf_power2(p, n));
}

/* ---- activations ---- */

#define FORMULA_LOG2E 1.4426950408889634

/* 1 / (1 + e^-x) */
FORMULA vf formula_sigmoid(vf x)
{
    return formula_falling2(x * vf_set((float)-FORMULA_LOG2E));
}
/* x s with s = sigmoid(x), and its slope s (1 + x (1 - s)) */
FORMULA vf formula_silu(vf x)
{
    return x * formula_sigmoid(x);
}
FORMULA vf formula_silu_slope(vf x)
{
    vf s = formula_sigmoid(x), one = vf_set(1.0f);
    return s * vf_fma(x, one - s, one);
}

#define FORMULA_GELU_ROOT 0.7978845608028654 /* sqrt(2 / pi) */
#define FORMULA_GELU_CUBE 0.044715

/* s = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): gelu in its tanh form is x s. s keeps its
 * relative precision for very negative x. */
FORMULA vf formula_gelu_gate(vf x)
{
    const double root = -2 * FORMULA_GELU_ROOT * FORMULA_LOG2E;
    return formula_falling2(
        x * vf_fma(x * x, vf_set((float)(root * FORMULA_GELU_CUBE)), vf_set((float)root)));
}
FORMULA vf formula_gelu(vf x)
{
    return x * formula_gelu_gate(x);
}
/* s + x s (1 - s) 2 u' */
FORMULA vf formula_gelu_slope(vf x)
{
    const double root = 2 * FORMULA_GELU_ROOT;
    vf s = formula_gelu_gate(x),
       du = vf_fma(x * x, vf_set((float)(3 * root * FORMULA_GELU_CUBE)), vf_set((float)root));
    return vf_fma(x * s * (vf_set(1.0f) - s), du, s);
}

/* ---- pixels ---- */

/* 0..255 becomes -1..1. */
FORMULA vf formula_pixel(vf x)
{
    return vf_fma(x, vf_set((float)(2.0 / 255)), vf_set(-1.0f));
}

/* ---- attention ---- */

/* The weight of a score, e^(score - low); low is the row's maximum, or the log of its sum. */
FORMULA vf formula_weight(vf score, vf low)
{
    return formula_exp(score - low);
}
/* The gradient of a score, from its weight, the gradient of the weight, and D = rowsum(do o). */
FORMULA vf formula_score_grad(vf weight, vf dvalue, vf D)
{
    return weight * (dvalue - D);
}

/* Rotate the pair (a, b) by an angle. */
FORMULA vf formula_turn_first(vf a, vf b, vf cos, vf sin)
{
    return vf_fma(a, cos, vf_set(0.0f) - b * sin);
}
FORMULA vf formula_turn_second(vf a, vf b, vf cos, vf sin)
{
    return vf_fma(b, cos, a * sin);
}

/* ---- optimizer ---- */

/* The constants of an AdamW step (adamw.c); c1, c2 = 1 / (1 - beta^step). */
typedef struct formula_adam {
    vf scale, b1, b2, c1, c2, eps, lr, wd;
} formula_adam;
FORMULA void formula_adamw(const formula_adam *t, vf grad, vf *master, vf *m, vf *v)
{
    vf one = vf_set(1.0f), g = grad * t->scale;
    *m = vf_fma(t->b1, *m, (one - t->b1) * g);
    *v = vf_fma(t->b2, *v, (one - t->b2) * g * g);
    *master =
        *master - t->lr * vf_fma(t->wd, *master, (*m * t->c1) / (vf_sqrt(*v * t->c2) + t->eps));
}
/* The running average of weights: d mean + (1 - d) x. */
FORMULA vf formula_average(vf d, vf mean, vf x)
{
    return vf_fma(d, mean, (vf_set(1.0f) - d) * x);
}

#endif
