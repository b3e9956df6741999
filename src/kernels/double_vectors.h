// Arithmetic on vectors of doubles, for methods that stretch small differences (NestedKV). All have n numbers
// where nothing else is said; results may lie where an argument does.
#pragma once

#include <cstddef>

namespace keynest {

/// sum += x.
void add_doubles(const double* x, std::size_t n, double* sum);
/// sum -= x.
void subtract_doubles(const double* x, std::size_t n, double* sum);
/// out = x * factor.
void scale_doubles(const double* x, double factor, std::size_t n, double* out);

struct DotProducts {
  double xx, xy, yy;
};
DotProducts dot_products(const double* x, const double* y, std::size_t n);

/// out = x moved and stretched to [0, 1]; all 0 where the span of x is at most `flat`. n > 0.
void stretch_to_unit(const double* x, double flat, std::size_t n, double* out);

double mean_of_doubles(const double* x, std::size_t n);

/// Mean of the `count` smallest of x in [0, 1]; 0 < count <= n. Equal numbers are alike.
double mean_of_smallest(const double* x, std::size_t count, std::size_t n);
double mean_of_largest(const double* x, std::size_t count, std::size_t n);

/// What mix_scales makes of `scales` vectors, entry by entry.
struct MixedScales {
  double* blend;      ///< their sum with weights
  double* strongest;  ///< the largest, at least 0
  double* deviation;  ///< their population standard deviation
};
inline constexpr int kMaxScales = 3;
/// x: [scales] pointers to [n] each; 0 < scales <= kMaxScales; weights: [scales].
void mix_scales(const double* const* x, const double* weights, int scales, std::size_t n,
                const MixedScales& out);

/// gate = 1 / (1 + exp(-steepness * (x - middle))).
void open_gates(const double* x, double steepness, double middle, std::size_t n, double* gate);
/// out = a + gate * (b - a), as (1 - gate) a + gate b.
void blend_by_gate(const double* a, const double* b, const double* gate, std::size_t n, double* out);

}  // namespace keynest
