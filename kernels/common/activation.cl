// The activations. This file precedes every source of an operation that has one. If f maps an
// infinity to a finite number, the result is f(x) + 0 * x. That equals f(x) for finite x and is NaN
// otherwise, so that an overflowed sum shows in the scores. OpenCL compilers keep the term without
// fast-math options. x names a value of any float type and is evaluated more than once.
// ACTIVATION: 0 none, 1 sigmoid, 2 ReLU, 3 tanh, 4 leaky ReLU, 5 clip. No kernel fuses the others:
// 6 ELU, 7 GELU, 8 GELU by tanh, 9 hard sigmoid, 10 hard swish, 11 SiLU, 12 Mish, 13 softplus, 14
// absolute value, 15 error function, 16 sine, 17 cosine, 18 floor, 19 nearest whole number, 20
// above 0, 21 not below 0, 22 exponential, 23 reciprocal, 24 logarithm, 25 square root. The
// argument params holds a slope, two limits, alpha and gamma, or alpha and beta.
// ROUNDS: kernels round to the nearest whole number, of two the even one, before the activation.
#ifdef ROUNDS
#define ROUNDED(x) rint(x)
#else
#define ROUNDED(x) (x)
#endif
#define SIGMOID(x) (1.0f / (1.0f + exp(-(x))) + 0.0f * (x))
#define RELU(x) (max((x), 0.0f) + 0.0f * (x)) // whatever max gives for NaN and infinities
#define TANH(x) (tanh(x) + 0.0f * (x))
#define LEAKY_RELU(x) ((x) > 0.0f ? (x) : params.s0 * (x)) // NaN and infinities stay
#define CLIP(x) (min(max((x), params.s0), params.s1) + 0.0f * (x))
#define ELU(x) (params.s1 * ((x) > 0.0f ? (x) : params.s0 * expm1(x)) + 0.0f * (x))
// 1 + erf and 1 + tanh would cancel. Below -5.5 only their rounding error, 3e-8 times x, would
// remain.
#define GELU(x) (0.5f * (x) * erfc(-0.70710678f * (x)) + 0.0f * (x))
#define GELU_TANH(x) \
    ((x) / (1.0f + exp(-1.5957691f * ((x) + 0.044715f * (x) * (x) * (x)))) + 0.0f * (x))
#define HARD_SIGMOID(x) (min(max(params.s0 * (x) + params.s1, 0.0f), 1.0f) + 0.0f * (x))
#define HARD_SWISH(x) ((x) * min(max((x) * 0.16666667f + 0.5f, 0.0f), 1.0f) + 0.0f * (x))
#define SILU(x) ((x) / (1.0f + exp(-(x))) + 0.0f * (x))
// With w = 1 + e^x, tanh(ln w) is (w * w - 1) / (w * w + 1), which is 1 from 20 on.
#define MISH_EXP(x) exp(min((x), 20.0f))
#define MISH_SQUARE(x) (MISH_EXP(x) * (MISH_EXP(x) + 2.0f)) // w * w - 1
#define MISH(x) ((x) * (MISH_SQUARE(x) / (MISH_SQUARE(x) + 2.0f)) + 0.0f * (x))
#define SOFTPLUS(x) (max((x), 0.0f) + log1p(exp(-fabs(x))) + 0.0f * (x))
#define MATH(f, x) (f(x) + 0.0f * (x))
#define TRUTH(x, truth) (((truth) ? 1.0f : 0.0f) + 0.0f * (x))
// exp2 takes half the registers of exp. The rounding of its argument changes a result by less than
// an ulp of 1.
#define SIGMOID_EXP2(x) (1.0f / (1.0f + exp2(-1.44269504f * (x))) + 0.0f * (x))
#define TANH_EXP2(x) (2.0f / (1.0f + exp2(-2.88539008f * (x))) - 1.0f + 0.0f * (x))

#ifndef ACTIVATION
#define ACTIVATION 0
#endif
#if ACTIVATION == 0
#define ACTIVATE(x) (x)
#elif ACTIVATION == 1
#define ACTIVATE(x) SIGMOID(x)
#elif ACTIVATION == 2
#define ACTIVATE(x) RELU(x)
#elif ACTIVATION == 3
#define ACTIVATE(x) TANH(x)
#elif ACTIVATION == 4
#define ACTIVATE(x) LEAKY_RELU(x)
#elif ACTIVATION == 5
#define ACTIVATE(x) CLIP(x)
#elif ACTIVATION == 6
#define ACTIVATE(x) ELU(x)
#elif ACTIVATION == 7
#define ACTIVATE(x) GELU(x)
#elif ACTIVATION == 8
#define ACTIVATE(x) GELU_TANH(x)
#elif ACTIVATION == 9
#define ACTIVATE(x) HARD_SIGMOID(x)
#elif ACTIVATION == 10
#define ACTIVATE(x) HARD_SWISH(x)
#elif ACTIVATION == 11
#define ACTIVATE(x) SILU(x)
#elif ACTIVATION == 12
#define ACTIVATE(x) MISH(x)
#elif ACTIVATION == 13
#define ACTIVATE(x) SOFTPLUS(x)
#elif ACTIVATION == 14
#define ACTIVATE(x) MATH(fabs, x)
#elif ACTIVATION == 15
#define ACTIVATE(x) MATH(erf, x)
#elif ACTIVATION == 16
#define ACTIVATE(x) MATH(sin, x)
#elif ACTIVATION == 17
#define ACTIVATE(x) MATH(cos, x)
#elif ACTIVATION == 18
#define ACTIVATE(x) MATH(floor, x)
#elif ACTIVATION == 19
#define ACTIVATE(x) MATH(rint, x)
#elif ACTIVATION == 20
#define ACTIVATE(x) TRUTH(x, (x) > 0.0f)
#elif ACTIVATION == 21
#define ACTIVATE(x) TRUTH(x, (x) >= 0.0f)
#elif ACTIVATION == 22
#define ACTIVATE(x) MATH(exp, x)
#elif ACTIVATION == 23
#define ACTIVATE(x) (1.0f / (x) + 0.0f * (x))
#elif ACTIVATION == 24
#define ACTIVATE(x) MATH(log, x)
#elif ACTIVATION == 25
#define ACTIVATE(x) MATH(sqrt, x)
#else
#error "ACTIVATION must be a code of common/activation, 0 to 25"
#endif
