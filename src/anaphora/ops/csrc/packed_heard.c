/* One chunk of sound through a spectrum, convolutions over its few places, one step of an LSTM and a linear map to one number;
   follows product.c. All weights are read once, in order: a chunk is bound by the cache that holds them.

   n: rows, samples of a chunk, samples before it, of a frame, between frames, frequencies, h, layers of convolution, then of each layer its
   inputs, outputs and stride. p: samples (rows, chunk), before (rows, earlier), h and c (rows, h); p of speech (rows), h and c after it,
   the samples before the next chunk (rows, earlier); then packed weights and bias of: the spectrum (2 · frequencies, frame), each
   convolution (outputs, 3 · inputs: place by place), the LSTM's gates (4 h, inputs and h side by side), the output (1, h).
   The chunk is mirrored at its end over `earlier` samples; every convolution has three taps and a place of zeros on both sides.
   Returns 1 without memory. */
static float *mapped(L rows, L outputs, L k, const float *x, void *const *weights, float *y, float *work) {
  const L sizes[5] = {rows, outputs, k, outputs, 1};
  linear_float(sizes, (void *[]){(void *)x, weights[0], weights[1], y, work});
  return y;
}

int heard_chunk(const L *n, void *const *p) {
  const L rows = n[0], chunk = n[1], earlier = n[2], frame = n[3], hop = n[4], bins = n[5], h = n[6], layers = n[7];
  const L *layer = n + 8, whole = earlier + chunk + earlier;
  L places = (whole - frame) / hop + 1, inputs = bins;
  L widest = frame > 2 * bins ? frame : 2 * bins; /* floats of a place, in whatever step */
  for (L l = 0; l < layers; l++) widest = 3 * layer[3 * l] > widest ? 3 * layer[3 * l] : widest;
  L last = layers ? layer[3 * layers - 2] : bins;
  widest = last + h > widest ? last + h : widest;
  widest = 4 * h > widest ? 4 * h : widest;
  const L room = rows * (places + 2) * widest;
  float *all = malloc((3 * room + whole) * sizeof(float));
  if (!all) return 1;
  float *x = all, *near = x + room, *work = near + room, *sound = work + room;
  void *const *weights = p + 8;
  for (L r = 0; r < rows; r++) {
    const float *new = (const float *)p[0] + r * chunk;
    memcpy(sound, (const float *)p[1] + r * earlier, earlier * sizeof(float));
    memcpy(sound + earlier, new, chunk * sizeof(float));
    for (L i = 0; i < earlier; i++) sound[earlier + chunk + i] = sound[earlier + chunk - 2 - i];
    for (L t = 0; t < places; t++) memcpy(near + (r * places + t) * frame, sound + t * hop, frame * sizeof(float));
    memcpy((float *)p[7] + r * earlier, new + chunk - earlier, earlier * sizeof(float));
  }
  mapped(rows * places, 2 * bins, frame, near, weights, x, work);
  weights += 2;
  for (L i = 0; i < rows * places; i++) {
    const float *both = x + i * 2 * bins;
    float *size = near + i * bins;
#pragma omp simd
    for (L j = 0; j < bins; j++) size[j] = sqrtf(both[j] * both[j] + both[bins + j] * both[bins + j]);
  }
  float *swapped = x;
  x = near, near = swapped;
  for (L l = 0; l < layers; l++, weights += 2) {
    const L outputs = layer[3 * l + 1], stride = layer[3 * l + 2], after = (places - 1) / stride + 1;
    for (L r = 0; r < rows; r++)
      for (L t = 0; t < after; t++)
        for (L tap = 0; tap < 3; tap++) {
          const L at = t * stride + tap - 1;
          float *to = near + ((r * after + t) * 3 + tap) * inputs;
          if (at < 0 || at >= places) memset(to, 0, inputs * sizeof(float));
          else memcpy(to, x + (r * places + at) * inputs, inputs * sizeof(float));
        }
    mapped(rows * after, outputs, 3 * inputs, near, weights, x, work);
    for (L i = 0; i < rows * after * outputs; i++) x[i] = x[i] < 0 ? 0 : x[i];
    places = after, inputs = outputs;
  }
  for (L r = 0; r < rows; r++) { /* the first place of each row */
    memcpy(near + r * (inputs + h), x + r * places * inputs, inputs * sizeof(float));
    memcpy(near + r * (inputs + h) + inputs, (const float *)p[2] + r * h, h * sizeof(float));
  }
  mapped(rows, 4 * h, inputs + h, near, weights, x, work);
  weights += 2;
  for (L r = 0; r < rows; r++) {
    const float *g = x + r * 4 * h, *c = (const float *)p[3] + r * h;
    float *new_h = (float *)p[5] + r * h, *new_c = (float *)p[6] + r * h, *open = near + r * h;
#pragma omp simd
    for (L j = 0; j < h; j++) {
      const float kept = FMA(r_sigmoid(g[h + j]), c[j], r_sigmoid(g[j]) * r_tanh(g[2 * h + j]));
      new_c[j] = kept;
      new_h[j] = r_sigmoid(g[3 * h + j]) * r_tanh(kept);
      open[j] = new_h[j] < 0 ? 0 : new_h[j];
    }
  }
  mapped(rows, 1, h, near, weights, p[4], work);
  for (L r = 0; r < rows; r++) ((float *)p[4])[r] = r_sigmoid(((float *)p[4])[r]);
  free(all);
  return 0;
}
