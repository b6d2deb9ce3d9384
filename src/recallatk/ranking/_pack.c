/* From grid rows to what the kernel reads: 8-bit rows in panels, 16-bit rows for a closer look, and bounds of both. */

#include "_native.h"

#ifdef HAVE_KERNEL
#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDOFF 0x1p-24 /* the largest relative error of one rounding to float */

/* ---- a row as floats ---- */

/* Sums and differences of the coordinates that are 1, 2, 4 ... apart, within each power of two of coordinates: a
   Hadamard transform of `size` (at least 16) coordinates, up to the factor sqrt(size). */
TARGET static void transform(float *v, int64_t size) {
  for (int64_t i = 0; i < size; i += 16) {
    __m512 x = _mm512_load_ps(v + i);
#define WITHIN(swapped, upper)                                                                                         \
  {                                                                                                                    \
    const __m512 other = swapped;                                                                                      \
    x = _mm512_mask_sub_ps(_mm512_add_ps(x, other), upper, other, x);                                                  \
  }
    WITHIN(_mm512_permute_ps(x, 0xB1), 0xAAAA)
    WITHIN(_mm512_permute_ps(x, 0x4E), 0xCCCC)
    WITHIN(_mm512_shuffle_f32x4(x, x, 0xB1), 0xF0F0)
    WITHIN(_mm512_shuffle_f32x4(x, x, 0x4E), 0xFF00)
    _mm512_store_ps(v + i, x);
  }
  for (int64_t apart = 16; apart < size; apart *= 2)
    for (int64_t start = 0; start < size; start += 2 * apart)
      for (int64_t i = start; i < start + apart; i += 16) {
        const __m512 x = _mm512_load_ps(v + i), y = _mm512_load_ps(v + i + apart);
        _mm512_store_ps(v + i, _mm512_add_ps(x, y));
        _mm512_store_ps(v + i + apart, _mm512_sub_ps(x, y));
      }
}

/* Turn a row by random signs and Hadamard transforms of the powers of two that add up to its width. What is left below
   16 coordinates only changes signs. */
TARGET static void turn(float *v, const frame_t *frame) {
  for (int64_t i = 0; i < frame->d; i++) v[i] *= frame->signs[i];
  int64_t start = 0;
  for (int64_t size = INT64_C(1) << 62; size >= 16; size /= 2) {
    if (!((frame->d - start) & size)) continue;
    transform(v + start, size);
    const __m512 factor = _mm512_set1_ps((float)(1 / sqrt((double)size)));
    for (int64_t i = start; i < start + size; i += 16)
      _mm512_store_ps(v + i, _mm512_mul_ps(_mm512_load_ps(v + i), factor));
    start += size;
  }
}

/* A row in its frame, in units of 2**26 steps; zeros from d on. How far it is from the exact one: `slack_of`. */
TARGET static void load_row(const int32_t *x, const frame_t *frame, float *v) {
  if (frame->origin)
    for (int64_t i = 0; i < frame->d; i++) v[i] = (float)(x[i] - frame->origin[i]) * 0x1p-26f;
  else
    for (int64_t i = 0; i < frame->d; i++) v[i] = (float)x[i] * 0x1p-26f;
  if (frame->signs) turn(v, frame);
}

/* The distance of a loaded row from the exact one, as a share of its length: one rounding for float32, one for each
   of the at most 15 sums of a transform, two for its factor, and one for what these make of each other. */
static double slack_of(const frame_t *frame) {
  double roundings = 2;
  for (int64_t size = 2; frame->signs && size <= frame->d; size *= 2) roundings++;
  return (roundings + 2) * ROUNDOFF;
}

/* Covers what float sums of d squares lose, and the distance of a loaded row from the exact one. */
static double grow_of(const frame_t *frame) { return 1 + ((double)frame->d + 64) * ROUNDOFF; }

static int64_t scratch_width(int64_t d) { return (d + 63) / 64 * 64; }

static float *scratch(int64_t d) {
  float *v = aligned_alloc(64, (size_t)scratch_width(d) * sizeof(float));
  if (v) memset(v, 0, (size_t)scratch_width(d) * sizeof(float));
  return v;
}

/* ---- before packing ---- */

TARGET static void measure_row(const float *v, int64_t d, double grow, double *largest, double *length) {
  __m512 most = _mm512_setzero_ps(), squares = most;
  for (int64_t i = 0; i < d; i += 16) {
    const __m512 x = _mm512_load_ps(v + i);
    most = _mm512_max_ps(most, _mm512_abs_ps(x));
    squares = _mm512_fmadd_ps(x, x, squares);
  }
  *largest = _mm512_reduce_max_ps(most);
  *length = sqrt((double)_mm512_reduce_add_ps(squares)) * grow;
}

/* The bits of a row, as far as its coordinates may still be few steps of one size (`_steps` in packing.py): more
   coordinates only add bits and lower the smallest. Of most rows the first few tell. */
TARGET static void measure_bits(const int32_t *x, int64_t d, int32_t *common, int32_t *smallest) {
  int32_t bits = 0, least = INT32_MAX;
  for (int64_t start = 0; start < d; start += 16) {
    for (int64_t i = start; i < d && i < start + 16; i++) {
      const int32_t size = x[i] < 0 ? -x[i] : x[i];
      bits |= size;
      least = size && size < least ? size : least;
    }
    if (bits != least && bits > 127 * (int64_t)(bits & -bits)) break;
  }
  *common = bits, *smallest = least;
}

/* Measure rows[from] to rows[to]; 0 without memory. */
int measure_rows(const int32_t *grid, const int64_t *rows, int64_t from, int64_t to, const frame_t *frame,
                 const measures_t *out) {
  float *v = scratch(frame->d);
  if (!v) return 0;
  for (int64_t k = from; k < to; k++) {
    const int32_t *x = grid + rows[k] * frame->d;
    load_row(x, frame, v);
    measure_row(v, frame->d, grow_of(frame), out->largest + k, out->length + k);
    if (!frame->origin && !frame->signs) measure_bits(x, frame->d, out->common + k, out->smallest + k);
  }
  free(v);
  return 1;
}

/* ---- packing ---- */

/* <origin, x - origin> in grid steps: every sum is a whole number below 2**53. */
TARGET static double bias_of(const int32_t *x, const frame_t *frame) {
  double sums[8] = {0};
  for (int64_t i = 0; i < frame->d; i++)
    sums[i % 8] += (double)frame->origin[i] * (double)(x[i] - frame->origin[i]);
  double sum = 0;
  for (int k = 0; k < 8; k++) sum += sums[k];
  return sum;
}

typedef struct {
  int32_t sum, squares;
  float rest, fine_rest; /* squared lengths of what rounding left over */
} rounded_t;

/* Round a row to 8 bits of size `scale`, and to 16 bits of size `fine_scale`. */
TARGET static rounded_t round_row(const float *v, int64_t width, float scale, float fine_scale, int8_t *codes,
                                  int16_t *fine) {
  const __m512 one = _mm512_set1_ps(scale), inverse = _mm512_set1_ps(1 / scale);
  const __m512 fine_one = _mm512_set1_ps(fine_scale), fine_inverse = _mm512_set1_ps(1 / fine_scale);
  const __m512i most = _mm512_set1_epi32(127), least = _mm512_set1_epi32(-127);
  __m512i sum = _mm512_setzero_si512(), squares = sum;
  __m512 rest = _mm512_setzero_ps(), fine_rest = rest;
  for (int64_t i = 0; i < width; i += 16) {
    const __m512 x = _mm512_load_ps(v + i);
    const __m512i code = _mm512_max_epi32(least, _mm512_min_epi32(most, _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse))));
    const __m512i close = _mm512_cvtps_epi32(_mm512_mul_ps(x, fine_inverse));
    const __m512 e = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(code), one, x);
    const __m512 fine_e = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(close), fine_one, x);
    rest = _mm512_fmadd_ps(e, e, rest);
    fine_rest = _mm512_fmadd_ps(fine_e, fine_e, fine_rest);
    sum = _mm512_add_epi32(sum, code);
    squares = _mm512_add_epi32(squares, _mm512_mullo_epi32(code, code));
    _mm_store_si128((__m128i *)(codes + i), _mm512_cvtepi32_epi8(code));
    _mm256_storeu_si256((__m256i *)(fine + i), _mm512_cvtepi32_epi16(close));
  }
  return (rounded_t){_mm512_reduce_add_epi32(sum), _mm512_reduce_add_epi32(squares), _mm512_reduce_add_ps(rest),
                     _mm512_reduce_add_ps(fine_rest)};
}

/* Put groups of four 8-bit coordinates where the panels of both sides want them. */
static void spread(const int8_t *codes, int64_t words, int64_t place, int8_t *left, uint8_t *right) {
  const uint32_t *group = (const uint32_t *)codes;
  if (left) {
    uint32_t *to = (uint32_t *)left + place / LEFT * words * LEFT + place % LEFT;
    for (int64_t w = 0; w < words; w++) to[w * LEFT] = group[w];
  }
  if (right) { /* unsigned: each coordinate plus 128 */
    uint32_t *to = (uint32_t *)right + place / RIGHT * words * RIGHT + place % RIGHT;
    for (int64_t w = 0; w < words; w++) to[w * RIGHT] = group[w] ^ 0x80808080u;
  }
}

/* Pack rows[from] to rows[to] into the places of these numbers; 0 without memory. */
int pack_rows(const int32_t *grid, const int64_t *rows, int64_t from, int64_t to, const frame_t *frame,
              const packed_t *out) {
  const int64_t d = frame->d, width = fine_width(d);
  const double slack = slack_of(frame), grow = grow_of(frame);
  float *v = scratch(d);
  int8_t *codes = aligned_alloc(64, (size_t)scratch_width(d));
  for (int64_t place = from; v && codes && place < to; place++) {
    const int32_t *x = grid + rows[place] * d;
    const int64_t block = place / SUPERBLOCK;
    if (place + 1 < to) prefetch(grid + rows[place + 1] * d, 4 * d);
    load_row(x, frame, v);
    const rounded_t row =
        round_row(v, width, (float)out->scale[block], (float)out->fine_scale[block], codes, out->fine + place * width);
    spread(codes, words_of(d), place, out->left, out->right);
    const double missed = slack * out->length[place] + 0x1p-50;
    out->offset[place] = -128 * row.sum;
    out->head[place] = out->scale[block] * sqrt((double)row.squares) * (1 + 0x1p-30);
    out->tail[place] = out->step[block] > 0 ? 0 : sqrt((double)row.rest) * grow + missed;
    out->fine_tail[place] = sqrt((double)row.fine_rest) * grow + missed;
    out->bias[place] = frame->origin ? bias_of(x, frame) / STEPS : 0;
  }
  const int done = v && codes;
  free(v), free(codes);
  return done;
}
#endif
