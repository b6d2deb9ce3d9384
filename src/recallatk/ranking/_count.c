/* Counting gallery rows above, level with and near the best positive of every query: 8-bit products decide what they
   can prove; what they leave open is looked at in 16 bits, and then exactly.

   A row x in its frame is s r + e, with r of 8-bit integers and s the scale of its superblock. The integer product A of
   two such rows is exact, and | <x, y> - s_x s_y A | <= |s_x r_x| |e_y| + |e_x| |y|. */

#include "_native.h"

#ifdef HAVE_KERNEL
#include <immintrin.h>
#include <math.h>

typedef struct {
  int32_t low[SUPERBLOCK] __attribute__((aligned(64)));
  int32_t high[SUPERBLOCK] __attribute__((aligned(64)));
  int32_t start[SUPERBLOCK] __attribute__((aligned(64))); /* the bias in steps of the product */
  uint64_t level[SUPERBLOCK / 64]; /* one bit for each: what is above low and not above high is exactly level */
} thresholds_t;

/* Counts of the 64 columns of a right panel, as queries. */
typedef struct {
  int32_t above[RIGHT] __attribute__((aligned(64)));
  int32_t level[RIGHT] __attribute__((aligned(64)));
} columns_t;

/* ---- bounds ---- */

/* As error_bound, for the product of two 16-bit rows. Their heads are at most as long as the row and its tail together. */
static inline double fine_bound(const side_t *q, const side_t *g, int64_t block, int64_t other) {
  const double tail = q->fine_tail[block], head = q->longest[block] + tail;
  return (head * g->fine_tail[other] + tail * g->longest[other]) * (1 + 0x1p-40) + 0x1p-48;
}

#define LOAD(array) _mm512_loadu_pd((array) + first + k)
#define TO_INT32(x)                                                                                                    \
  _mm512_cvtpd_epi32(_mm512_min_pd(_mm512_max_pd(x, _mm512_set1_pd(INT32_MIN)), _mm512_set1_pd(INT32_MAX)))
#define FLOOR(x) _mm512_roundscale_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define CEIL(x) _mm512_roundscale_pd(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)

/* The largest whole number q with q * unit <= x, for whole numbers below 2**53. */
TARGET static inline __m512d whole_quotient(__m512d x, __m512d unit) {
  const __m512d zero = _mm512_setzero_pd(), one = _mm512_set1_pd(1);
  __m512d q = FLOOR(_mm512_div_pd(x, unit));
  const __m512d rest = _mm512_fnmadd_pd(q, unit, x); /* exact: the division was off by less than one */
  q = _mm512_mask_sub_pd(q, _mm512_cmp_pd_mask(rest, zero, _CMP_LT_OQ), q, one);
  return _mm512_mask_add_pd(q, _mm512_cmp_pd_mask(rest, unit, _CMP_GE_OQ), q, one);
}

/* Integer thresholds of one superblock of queries against one of the gallery: above `high` a product is surely more
   than a near-tie above the best positive, at or below `low` surely more than a near-tie below. The quotients are far
   below 2**31, so their rounding is below 1e-6, and each of the two biases is rounded to a whole step: two steps of
   slack cover all of it. Between two superblocks without any error the thresholds are exact.
   A query without a best positive has one at infinity: no product is above that. */
TARGET static void set_thresholds(const task_t *t, const side_t *q, const side_t *g, int64_t block, int64_t other,
                                  thresholds_t *out) {
  const int64_t first = block * SUPERBLOCK;
  const double exact_unit = q->step[block] * g->step[other];
  const __m512d unit = _mm512_set1_pd(exact_unit > 0 ? exact_unit : q->scale[block] * g->scale[other]);
  const __m512d one = _mm512_set1_pd(1), two = _mm512_set1_pd(2);
  for (int64_t k = 0; k < SUPERBLOCK; k += 8) {
    __m512d low, high;
    __mmask8 level = 0;
    if (exact_unit > 0) {
      const __m512d best = _mm512_mul_pd(LOAD(q->best), _mm512_set1_pd(STEPS)), near = _mm512_set1_pd(t->near_steps);
      high = whole_quotient(_mm512_add_pd(best, near), unit);
      low = whole_quotient(_mm512_sub_pd(_mm512_sub_pd(best, near), one), unit);
      level = _mm512_cmp_pd_mask(_mm512_add_pd(low, one), high, _CMP_EQ_OQ) &
              _mm512_cmp_pd_mask(_mm512_mul_pd(high, unit), best, _CMP_EQ_OQ);
    } else {
      __m512d bound = _mm512_mul_pd(LOAD(q->head), _mm512_set1_pd(g->most_tail[other]));
      bound = _mm512_fmadd_pd(LOAD(q->tail), _mm512_set1_pd(g->longest[other]), bound);
      bound = _mm512_fmadd_pd(bound, _mm512_set1_pd(1 + 0x1p-40), _mm512_set1_pd(0x1p-48 + t->near_steps / STEPS));
      const __m512d best = _mm512_sub_pd(LOAD(q->best), _mm512_set1_pd(t->origin));
      low = _mm512_sub_pd(FLOOR(_mm512_div_pd(_mm512_sub_pd(best, bound), unit)), two);
      high = _mm512_add_pd(CEIL(_mm512_div_pd(_mm512_add_pd(best, bound), unit)), two);
    }
    const __m512d start = _mm512_roundscale_pd(_mm512_div_pd(LOAD(q->bias), unit), _MM_FROUND_TO_NEAREST_INT);
    _mm256_store_si256((__m256i *)(out->low + k), TO_INT32(low));
    _mm256_store_si256((__m256i *)(out->high + k), TO_INT32(high));
    _mm256_store_si256((__m256i *)(out->start + k), TO_INT32(start));
    ((uint8_t *)out->level)[k / 8] = level;
  }
}

/* ---- what the thresholds leave open ---- */

/* A pair to look at again: `other` is a place of the other side; `column`: the query is a column of its tile. */
typedef struct {
  int64_t place, other;
  int32_t product, column;
} pair_t;

/* Pairs wait here while the kernel works on the next tile: meanwhile their rows come into the cache. */
typedef struct {
  pair_t pairs[2 * LEFT * RIGHT];
  int n;
} queue_t;

/* The product of two 16-bit rows. No sum overflows: both rows are shorter than 2**15 * 1.01. */
TARGET static inline int32_t fine_product(const int16_t *x, const int16_t *y, int64_t width) {
  __m512i even = _mm512_setzero_si512(), odd = even;
  int64_t i = 0;
  for (; i + 64 <= width; i += 64) {
    even = _mm512_dpwssd_epi32(even, _mm512_loadu_si512(x + i), _mm512_loadu_si512(y + i));
    odd = _mm512_dpwssd_epi32(odd, _mm512_loadu_si512(x + i + 32), _mm512_loadu_si512(y + i + 32));
  }
  if (i < width) even = _mm512_dpwssd_epi32(even, _mm512_loadu_si512(x + i), _mm512_loadu_si512(y + i));
  return _mm512_reduce_add_epi32(_mm512_add_epi32(even, odd));
}

/* Add to the counts of one query: `gap` is how far above the best positive `weight` gallery rows are. */
static inline void add(const counts_t *counts, int64_t place, double gap, double near, int32_t weight) {
  counts->above[place] += gap > 0 ? weight : 0;
  counts->level[place] += gap == 0 ? weight : 0;
  counts->far_above[place] += gap > near ? weight : 0;
  counts->near_below[place] += gap < 0 && gap >= -near ? weight : 0;
}

/* Where two superblocks are so alike that their bound is narrower than a near-tie, the 8-bit product says more than the
   thresholds asked of it. Returns whether it does here. */
static int decide_alike(const task_t *t, const side_t *q, const side_t *g, const counts_t *counts, const pair_t *pair) {
  const int64_t block = pair->place / SUPERBLOCK, other = pair->other / SUPERBLOCK;
  const double near = t->near_steps / STEPS, unit = q->scale[block] * g->scale[other];
  const double bound = error_bound(q, g, pair->place, other) + 2 * unit;
  const double gap = (double)pair->product * unit + t->origin - q->best[pair->place];
  if (fabs(gap) <= bound || fabs(fabs(gap) - near) <= bound) return 0;
  add(counts, pair->place, gap, near, g->weight[pair->other]);
  return 1;
}

/* Decide pairs by their 16-bit products; those that are still open go to the next queue. */
TARGET static void decide_open(const task_t *t, queue_t *open, queue_t *left_over) {
  const int64_t width = fine_width(t->d);
  const double near = t->near_steps / STEPS;
  for (const pair_t *pair = open->pairs, *end = pair + open->n; pair < end; pair++) {
    const side_t *q = pair->column ? &t->gallery : &t->query, *g = pair->column ? &t->query : &t->gallery;
    const counts_t *counts = pair->column ? &t->columns : &t->rows;
    const int64_t place = pair->place, other = pair->other, block = place / SUPERBLOCK, beside = other / SUPERBLOCK;
    const double bound = fine_bound(q, g, block, beside), unit = q->fine_scale[block] * g->fine_scale[beside];
    const double product = fine_product(q->fine + place * width, g->fine + other * width, width);
    const double gap = product * unit + q->bias[place] + g->bias[other] + t->origin - q->best[place];
    const int64_t hit = g->weight[other] & -(int64_t)(gap > 0); /* no branch: either is as likely */
    if (fabs(gap) > bound + near) {
      counts->above[place] += hit;
      counts->far_above[place] += hit;
    } else if (q->most_tail[block] * g->longest[beside] > near || !decide_alike(t, q, g, counts, pair)) {
      prefetch(q->grid + q->row[place] * t->d, 4 * t->d);
      prefetch(g->grid + g->row[other] * t->d, 4 * t->d);
      left_over->pairs[left_over->n++] = *pair;
    }
  }
  open->n = 0;
}

static void decide_exactly(task_t *t, queue_t *left_over) {
  for (const pair_t *pair = left_over->pairs, *end = pair + left_over->n; pair < end; pair++) {
    const side_t *q = pair->column ? &t->gallery : &t->query, *g = pair->column ? &t->query : &t->gallery;
    const double product =
        exact_product(q->grid + q->row[pair->place] * t->d, g->grid + g->row[pair->other] * t->d, t->d);
    const double gap = product - q->best[pair->place] * STEPS; /* whole numbers below 2**53 */
    add(pair->column ? &t->columns : &t->rows, pair->place, gap, t->near_steps, g->weight[pair->other]);
  }
  t->rechecked += left_over->n;
  left_over->n = 0;
}

/* Look at the pairs of a row (or column) of a tile that its thresholds left open; without any error the 8-bit product
   is exact. */
TARGET static inline __attribute__((always_inline)) void look_closer(queue_t *open, const task_t *t, const side_t *q,
                                                                     const side_t *g, const counts_t *counts,
                                                                     pair_t pair) {
  const double unit = q->step[pair.place / SUPERBLOCK] * g->step[pair.other / SUPERBLOCK];
  if (unit > 0)
    add(counts, pair.place, (double)pair.product * unit - q->best[pair.place] * STEPS, t->near_steps,
        g->weight[pair.other]);
  else
    open->pairs[open->n++] = pair;
}

/* ---- tiles ---- */

/* How many rows these places of a right panel stand for. */
TARGET static inline int64_t weigh(const side_t *g, int64_t right, uint64_t hits) {
  if (g->plain[right]) return __builtin_popcountll(hits);
  __m512i sum = _mm512_setzero_si512();
  for (int v = 0; v < 4; v++)
    sum = _mm512_mask_add_epi32(sum, (__mmask16)(hits >> 16 * v), sum,
                                _mm512_loadu_si512(g->weight + right * RIGHT + 16 * v));
  return _mm512_reduce_add_epi32(sum);
}

TARGET static inline void add_to_columns(int32_t *counts, uint64_t hits, int32_t weight) {
  for (int v = 0; v < 4; v++) {
    const __m512i old = _mm512_load_si512(counts + 16 * v);
    _mm512_store_si512(counts + 16 * v,
                       _mm512_mask_add_epi32(old, (__mmask16)(hits >> 16 * v), old, _mm512_set1_epi32(weight)));
  }
}

/* Which of 64 products are above their thresholds. */
#define ABOVE(v, threshold) ((uint64_t)_mm512_cmpgt_epi32_mask(product[v], threshold) << (16 * (v)))
#define ABOVE_ALL(t0, t1, t2, t3) (ABOVE(0, t0) | ABOVE(1, t1) | ABOVE(2, t2) | ABOVE(3, t3))
#define ABOVE_ONE(threshold) ABOVE_ALL(threshold, threshold, threshold, threshold)
#define ABOVE_EACH(from)                                                                                               \
  ABOVE_ALL(_mm512_load_si512(from), _mm512_load_si512((from) + 16), _mm512_load_si512((from) + 32),                   \
            _mm512_load_si512((from) + 48))

/* One kernel call: 6 queries against 64 gallery rows. With `counted`, these 64 are queries against the 6 as well. */
TARGET static void count_panel(task_t *t, int64_t left, int64_t right, const thresholds_t *rows,
                               const thresholds_t *columns, columns_t *counted, queue_t *waiting) {
  int32_t out[LEFT * RIGHT] __attribute__((aligned(64)));
  const side_t *q = &t->query, *g = &t->gallery;
  const int64_t first = left * LEFT, other = right * RIGHT, rest = g->n - other, words = words_of(t->d);
  const int64_t from = first % SUPERBLOCK, at = other % SUPERBLOCK;
  int32_t row_start[LEFT];
  for (int r = 0; r < LEFT; r++) row_start[r] = q->offset[first + r] + rows->start[from + r];
  kernel_products(q->left + left * words * 4 * LEFT, g->right + right * words * 4 * RIGHT, words, row_start,
                  columns->start + at, out);
  decide_exactly(t, waiting + 1);
  decide_open(t, waiting, waiting + 1);
  const uint64_t valid = rest >= 64 ? ~0ull : (1ull << rest) - 1;
  for (int r = 0; r < LEFT && first + r < q->n; r++) {
    const int64_t place = first + r;
    __m512i product[4];
    for (int v = 0; v < 4; v++) product[v] = _mm512_load_si512(out + r * RIGHT + v * 16);
    uint64_t open = ABOVE_ONE(_mm512_set1_epi32(rows->low[from + r])) & valid;
    if (open) {
      const uint64_t sure = ABOVE_ONE(_mm512_set1_epi32(rows->high[from + r])) & valid;
      t->rows.above[place] += weigh(g, right, sure);
      t->rows.far_above[place] += weigh(g, right, sure);
      open &= ~sure;
      if (open && rows->level[(from + r) / 64] >> (from + r) % 64 & 1) {
        t->rows.level[place] += weigh(g, right, open);
        open = 0;
      }
      for (; open; open &= open - 1) {
        const int c = __builtin_ctzll(open);
        look_closer(waiting, t, q, g, &t->rows, (pair_t){place, other + c, out[r * RIGHT + c], 0});
      }
    }
    if (!counted) continue;
    open = ABOVE_EACH(columns->low + at) & valid;
    if (open) {
      const uint64_t sure = ABOVE_EACH(columns->high + at) & valid, level = open & ~sure & columns->level[at / 64];
      add_to_columns(counted->above, sure, q->weight[place]);
      if (level) add_to_columns(counted->level, level, q->weight[place]);
      for (open &= ~sure & ~level; open; open &= open - 1) {
        const int c = __builtin_ctzll(open);
        look_closer(waiting, t, g, q, &t->columns, (pair_t){other + c, place, out[r * RIGHT + c], 1});
      }
    }
  }
}

static void flush(const task_t *t, int64_t right, const columns_t *counted) {
  for (int64_t c = 0; c < RIGHT; c++) {
    t->columns.above[right * RIGHT + c] += counted->above[c];
    t->columns.far_above[right * RIGHT + c] += counted->above[c];
    t->columns.level[right * RIGHT + c] += counted->level[c];
  }
}

/* The superblocks `from` to `to` of the queries, at most AT_ONCE, against the gallery. A right panel stays in the cache
   while the left panels of several superblocks pass by. On the diagonal of a triangle a tile holds both orders of every
   pair already, so its columns are not counted. */
void count_superblocks(task_t *t, int64_t from, int64_t to) {
  thresholds_t rows[AT_ONCE], columns[AT_ONCE];
  queue_t waiting[2]; /* for a 16-bit product, and for an exact one */
  waiting[0].n = waiting[1].n = 0;
  for (int64_t other = t->triangle ? from : 0; other < t->gallery.superblocks; other++) {
    const int64_t end = t->triangle && other + 1 < to ? other + 1 : to;
    for (int64_t block = from; block < end; block++) {
      set_thresholds(t, &t->query, &t->gallery, block, other, rows + block - from);
      set_thresholds(t, &t->gallery, &t->query, other, block, columns + block - from);
    }
    for (int64_t right = other * 3; right < other * 3 + 3 && right * RIGHT < t->gallery.n; right++) {
      columns_t counted = {{0}, {0}};
      for (int64_t block = from; block < end; block++) {
        const int on_diagonal = t->triangle && block == other;
        for (int64_t left = block * 32; left < block * 32 + 32 && left * LEFT < t->query.n; left++)
          count_panel(t, left, right, rows + block - from, columns + block - from,
                      t->both && !on_diagonal ? &counted : 0, waiting);
      }
      if (t->both) flush(t, right, &counted);
    }
  }
  decide_exactly(t, waiting + 1);
  decide_open(t, waiting, waiting + 1);
  decide_exactly(t, waiting + 1);
}
#endif
