/* Finding every pair of a query and a gallery row whose similarity is at least what the query asks for.

   The bound is that of _count.c, and only its lower side is needed: what the 8-bit product does not rule out is
   multiplied exactly. Meant for queries that ask for a few of many rows. */

#include "_native.h"

#ifdef HAVE_KERNEL
#include <immintrin.h>
#include <math.h>

typedef struct {
  int32_t low[SUPERBLOCK] __attribute__((aligned(64)));
  int32_t start[SUPERBLOCK] __attribute__((aligned(64))); /* the bias in steps of the product */
} thresholds_t;

/* At or below `low` a product is surely below what the query asks for. The two steps are those of _count.c. */
TARGET static void set_thresholds(const search_t *s, const side_t *q, const side_t *g, int64_t block, int64_t other,
                                  thresholds_t *out) {
  const double unit = q->scale[block] * g->scale[other];
  for (int64_t k = 0; k < SUPERBLOCK; k++) {
    const int64_t place = block * SUPERBLOCK + k;
    const double low = floor((q->best[place] - s->origin - error_bound(q, g, place, other)) / unit) - 2;
    out->low[k] = low > INT32_MAX ? INT32_MAX : low < INT32_MIN ? INT32_MIN : (int32_t)low;
    out->start[k] = (int32_t)rint(q->bias[place] / unit);
  }
}

/* The places `first` + bits of `g` that a query may ask for. */
static void look_closer(search_t *s, const side_t *q, const side_t *g, int64_t place, int64_t other) {
  const double similarity = exact_product(q->grid + q->row[place] * s->d, g->grid + g->row[other] * s->d, s->d);
  if (similarity < q->best[place] * STEPS) return;
  s->owner[s->n] = q->row[place];
  s->other[s->n] = g->row[other];
  s->similarity[s->n++] = similarity;
}

#define ABOVE(v, threshold) ((uint64_t)_mm512_cmpgt_epi32_mask(product[v], threshold) << (16 * (v)))
#define LOW(v) _mm512_load_si512(columns->low + at + 16 * (v))

TARGET static void find_in_panel(search_t *s, int64_t left, int64_t right, const thresholds_t *rows,
                                 const thresholds_t *columns, int both) {
  int32_t out[LEFT * RIGHT] __attribute__((aligned(64)));
  const side_t *q = &s->query, *g = &s->gallery;
  const int64_t first = left * LEFT, other = right * RIGHT, rest = g->n - other, words = words_of(s->d);
  const int64_t from = first % SUPERBLOCK, at = other % SUPERBLOCK;
  int32_t row_start[LEFT];
  for (int r = 0; r < LEFT; r++) row_start[r] = q->offset[first + r] + rows->start[from + r];
  kernel_products(q->left + left * words * 4 * LEFT, g->right + right * words * 4 * RIGHT, words, row_start,
                  columns->start + at, out);
  const uint64_t valid = rest >= 64 ? ~0ull : (1ull << rest) - 1;
  for (int r = 0; r < LEFT && first + r < q->n; r++) {
    __m512i product[4];
    for (int v = 0; v < 4; v++) product[v] = _mm512_load_si512(out + r * RIGHT + v * 16);
    const __m512i low = _mm512_set1_epi32(rows->low[from + r]);
    for (uint64_t open = (ABOVE(0, low) | ABOVE(1, low) | ABOVE(2, low) | ABOVE(3, low)) & valid; open;
         open &= open - 1)
      look_closer(s, q, g, first + r, other + __builtin_ctzll(open));
    if (!both) continue;
    for (uint64_t open = (ABOVE(0, LOW(0)) | ABOVE(1, LOW(1)) | ABOVE(2, LOW(2)) | ABOVE(3, LOW(3))) & valid; open;
         open &= open - 1)
      look_closer(s, g, q, other + __builtin_ctzll(open), first + r);
  }
}

/* The superblocks `from` to `to` of the queries, at most AT_ONCE, against the gallery from the right panel `right` on:
   until all of it was seen, or until another panel might not fit. Returns the next right panel. */
int64_t find_pairs(search_t *s, int64_t from, int64_t to, int64_t right) {
  thresholds_t rows[AT_ONCE], columns[AT_ONCE];
  const int64_t panels = (s->gallery.n + RIGHT - 1) / RIGHT, most = 2 * RIGHT * SUPERBLOCK * (to - from);
  if (s->triangle && right < from * 3) right = from * 3;
  for (int64_t known = -1; right < panels && s->n + most <= s->room; right++) {
    const int64_t other = right / 3, end = s->triangle && other + 1 < to ? other + 1 : to;
    for (int64_t block = from; block < end && other != known; block++) {
      set_thresholds(s, &s->query, &s->gallery, block, other, rows + block - from);
      set_thresholds(s, &s->gallery, &s->query, other, block, columns + block - from);
    }
    known = other;
    for (int64_t block = from; block < end; block++)
      for (int64_t left = block * 32; left < block * 32 + 32 && left * LEFT < s->query.n; left++)
        find_in_panel(s, left, right, rows + block - from, columns + block - from, s->triangle && block < other);
  }
  return right;
}
#endif
