/* c[row] = a[row] · W for some rows (all without a list) of two arrays; rows are dealt to the threads in blocks that fit
   into the cache with their results. */
static int multiply_part(const L *n, void *const *p, L part) {
  const L M = n[0], N = n[1], Kd = n[2], threads = n[3], la = n[4], lc = n[5];
  const R *a = p[0], *P = p[2];
  R *c = p[1];
  const L *rows = p[3];
  L block = (L)(393216 / sizeof(R)) / (N + Kd);
  block = block < TALL ? TALL : block > 512 ? 512 : block / TALL * TALL;
  const R *from[512];
  R *to[512];
  for (L first = part * block; first < M; first += threads * block) {
    const L some = M - first < block ? M - first : block;
    for (L i = 0; i < some; i++) {
      const L row = rows ? rows[first + i] : first + i;
      from[i] = a + row * la;
      to[i] = c + row * lc;
    }
    gemm(some, from, to, N, Kd, P, 0);
  }
  return 0;
}
int multiply(const L *n, void *const *p) { return run_all(n, p, n[3], multiply_part); }
