/* Products: the kernel of the screen, and the exact one. */

#include "_native.h"

#ifdef HAVE_KERNEL
#include <immintrin.h>

/* 6 x 64 products of `words` groups of four coordinates:
   out[r][c] = row_start[r] + column_start[c] + sum of a[r] (signed) * b[c] (unsigned).
   Written as assembly because compilers spill the 24 accumulators; vpdpbusd does not saturate. */
#define ROW(offset, broadcast, c0, c1, c2, c3)                                                                         \
  "vpbroadcastd " #offset "(%[a]), %%zmm" #broadcast "\n\t"                                                            \
  "vpdpbusd %%zmm" #broadcast ", %%zmm0, %%zmm" #c0 "\n\t"                                                             \
  "vpdpbusd %%zmm" #broadcast ", %%zmm1, %%zmm" #c1 "\n\t"                                                             \
  "vpdpbusd %%zmm" #broadcast ", %%zmm2, %%zmm" #c2 "\n\t"                                                             \
  "vpdpbusd %%zmm" #broadcast ", %%zmm3, %%zmm" #c3 "\n\t"
#define START(offset, c0, c1, c2, c3)                                                                                  \
  "vpbroadcastd " #offset "(%[rows]), %%zmm4\n\t"                                                                      \
  "vpaddd 0(%[columns]), %%zmm4, %%zmm" #c0 "\n\t"                                                                     \
  "vpaddd 64(%[columns]), %%zmm4, %%zmm" #c1 "\n\t"                                                                    \
  "vpaddd 128(%[columns]), %%zmm4, %%zmm" #c2 "\n\t"                                                                   \
  "vpaddd 192(%[columns]), %%zmm4, %%zmm" #c3 "\n\t"
#define STORE(offset, c) "vmovdqa64 %%zmm" #c ", " #offset "(%[out])\n\t"

TARGET void kernel_products(const int8_t *a, const uint8_t *b, int64_t words, const int32_t *row_start,
                            const int32_t *column_start, int32_t *out) {
  __asm__ volatile(
      START(0, 8, 9, 10, 11) START(4, 12, 13, 14, 15) START(8, 16, 17, 18, 19)
      START(12, 20, 21, 22, 23) START(16, 24, 25, 26, 27) START(20, 28, 29, 30, 31)
      "1:\n\t"
      "vmovdqa64 0(%[b]), %%zmm0\n\t"
      "vmovdqa64 64(%[b]), %%zmm1\n\t"
      "vmovdqa64 128(%[b]), %%zmm2\n\t"
      "vmovdqa64 192(%[b]), %%zmm3\n\t"
      ROW(0, 4, 8, 9, 10, 11) ROW(4, 5, 12, 13, 14, 15) ROW(8, 6, 16, 17, 18, 19)
      ROW(12, 7, 20, 21, 22, 23) ROW(16, 4, 24, 25, 26, 27) ROW(20, 5, 28, 29, 30, 31)
      "add $24, %[a]\n\t"
      "add $256, %[b]\n\t"
      "dec %[words]\n\t"
      "jnz 1b\n\t"
      STORE(0, 8) STORE(64, 9) STORE(128, 10) STORE(192, 11)
      STORE(256, 12) STORE(320, 13) STORE(384, 14) STORE(448, 15)
      STORE(512, 16) STORE(576, 17) STORE(640, 18) STORE(704, 19)
      STORE(768, 20) STORE(832, 21) STORE(896, 22) STORE(960, 23)
      STORE(1024, 24) STORE(1088, 25) STORE(1152, 26) STORE(1216, 27)
      STORE(1280, 28) STORE(1344, 29) STORE(1408, 30) STORE(1472, 31)
      : [a] "+r"(a), [b] "+r"(b), [words] "+r"(words)
      : [rows] "r"(row_start), [columns] "r"(column_start), [out] "r"(out)
      : "memory", "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",
        "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22",
        "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", "zmm31");
}

/* The exact inner product of two grid rows: products below 2**52 and sums below 2**53 are exact in double. */
TARGET double exact_product(const int32_t *x, const int32_t *y, int64_t d) {
  __m512d s0 = _mm512_setzero_pd(), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
#define PART(o) _mm512_cvtepi32_pd(_mm256_loadu_si256((const __m256i *)(x + i + o))),                                  \
                _mm512_cvtepi32_pd(_mm256_loadu_si256((const __m256i *)(y + i + o)))
  for (; i + 32 <= d; i += 32) {
    s0 = _mm512_fmadd_pd(PART(0), s0);
    s1 = _mm512_fmadd_pd(PART(8), s1);
    s2 = _mm512_fmadd_pd(PART(16), s2);
    s3 = _mm512_fmadd_pd(PART(24), s3);
  }
  double sum = _mm512_reduce_add_pd(_mm512_add_pd(_mm512_add_pd(s0, s1), _mm512_add_pd(s2, s3)));
  for (; i < d; i++) sum += (double)x[i] * (double)y[i];
  return sum;
}
#endif
