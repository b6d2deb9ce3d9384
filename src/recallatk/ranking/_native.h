/* What the C files of the native backend share. Read docs/exactness.md first: it explains tile, bound and recheck.

   _kernel.c  products of packed rows, and exact products of grid rows
   _pack.c    grid rows -> 8-bit and 16-bit rows, and what bounds their error
   _count.c   thresholds, tiles, and what is done with a pair that the thresholds leave open
   _find.c    pairs that are similar enough, one by one
   _native.c  the Python module: it checks every buffer before the others see it

   Words: a place is a row's position in the order of packing; a superblock is 192 places with one scale; a panel is 6
   (left) or 64 (right) places packed for the kernel. A unit of similarity is 2**52 grid steps. */

#ifndef RECALLATK_NATIVE_H
#define RECALLATK_NATIVE_H

#include <stdint.h>

#define SUPERBLOCK 192
#define LEFT 6
#define RIGHT 64
#define AT_ONCE 8 /* superblocks of queries that pass by a right panel while it is in the cache, at most */
#define STEPS 0x1p52

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_KERNEL 1
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,popcnt,bmi")))

/* How many groups of four coordinates the kernel sees, and how wide a 16-bit row is. */
static inline int64_t words_of(int64_t d) { return (d + 3) / 4; }
static inline int64_t fine_width(int64_t d) { return (d + 31) / 32 * 32; }

/* Ask for a row before it is needed. */
static inline void prefetch(const void *row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)row + i, 0, 2);
}

/* ---- _kernel.c ---- */

void kernel_products(const int8_t *left, const uint8_t *right, int64_t words, const int32_t *row_start,
                     const int32_t *column_start, int32_t *out);
double exact_product(const int32_t *x, const int32_t *y, int64_t d);

/* ---- _pack.c ---- */

/* How a row is seen: `origin` is taken off, then it is turned. Either may be NULL. */
typedef struct {
  int64_t d;
  const int32_t *origin;
  const float *signs; /* of the random turn: each is 1 or -1 */
} frame_t;

typedef struct {
  double *largest, *length;   /* the largest coordinate and the length, rounded up, in units of 2**26 steps */
  int32_t *common, *smallest; /* bits that any coordinate has, and the smallest that is not zero; without a frame */
} measures_t;

typedef struct {
  const double *scale, *fine_scale; /* of each superblock */
  const double *step;               /* of each superblock: see side_t */
  const double *length;             /* of each place */
  int8_t *left;                     /* NULL: not wanted */
  uint8_t *right;                   /* NULL: not wanted */
  int16_t *fine;
  int32_t *offset;
  double *head, *tail, *fine_tail, *bias;
} packed_t;

int measure_rows(const int32_t *grid, const int64_t *rows, int64_t from, int64_t to, const frame_t *frame,
                 const measures_t *out);
int pack_rows(const int32_t *grid, const int64_t *rows, int64_t from, int64_t to, const frame_t *frame,
              const packed_t *out);

/* ---- _count.c ---- */

typedef struct {
  int64_t n, superblocks;
  const int8_t *left;
  const uint8_t *right;
  const int16_t *fine;
  const int32_t *grid;       /* rows in their original order */
  const int64_t *row;        /* of each place: which row of the grid it is */
  const int32_t *weight;     /* of each place: how many equal rows it stands for */
  const uint8_t *plain;      /* of each right panel: whether all its weights are 1 */
  const int32_t *offset;     /* of each place: -128 times the sum of its 8-bit coordinates */
  const double *head, *tail; /* of each place: |s r| and |e|, rounded up */
  const double *best;        /* of each place: the best positive in units, +inf for none */
  const double *bias;        /* of each place: <origin, x - origin> in units */
  const double *scale, *most_tail, *longest, *fine_scale, *fine_tail; /* of each superblock */
  const double *step; /* of each superblock: its rows are so many grid steps times their 8-bit rows, exactly; or 0 */
} side_t;

/* Counts of each place as a query. */
typedef struct {
  int64_t *far_above, *above, *level, *near_below;
} counts_t;

typedef struct {
  side_t query, gallery;
  counts_t rows, columns; /* of the queries, and of the gallery rows where they are queries too */
  int64_t d;
  double near_steps, origin; /* origin: <origin, origin> in units */
  int triangle;              /* one set: only superblocks on and above the diagonal are looked at */
  int both;                  /* gallery rows are queries too */
  int64_t rechecked;
} task_t;

void count_superblocks(task_t *task, int64_t from, int64_t to);

/* How far a product of two 8-bit rows, in units, may be from the exact one. */
static inline double error_bound(const side_t *q, const side_t *g, int64_t place, int64_t other) {
  return (q->head[place] * g->most_tail[other] + q->tail[place] * g->longest[other]) * (1 + 0x1p-40) + 0x1p-48;
}

/* ---- _find.c ---- */

typedef struct {
  side_t query, gallery; /* `best` is what each place asks for */
  int64_t d;
  double origin;
  int triangle; /* as in task_t; both rows of a pair ask then */
  int64_t *owner, *other; /* room for so many pairs: the row of the query, the other row, */
  double *similarity;     /* and how similar they are, in grid steps */
  int64_t room, n;
} search_t;

int64_t find_pairs(search_t *search, int64_t from, int64_t to, int64_t right);

#endif
#endif
