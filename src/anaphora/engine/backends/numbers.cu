// What every generated CUDA kernel computes with: number types by KIND (0 float32, 1 bfloat16, 2 float16) and functions.
// FAST: functions of 16-bit kernels by the tanh instruction, whose error of 2^-11 their numbers hide; 0 where a gate near 1 is
// multiplied with itself for thousands of steps.
typedef unsigned int u32;
typedef long long L;
typedef float R;
#define K(x) ((float)(x))
#define HALF (KIND!=0)
#define IN __device__ __forceinline__
#define UNROLL _Pragma("unroll")

#if KIND==1
struct alignas(2) elem{unsigned short u;};
IN float tof(elem v){return __uint_as_float((u32)v.u<<16);}
IN elem toe(float v){elem r;asm("cvt.rn.bf16.f32 %0,%1;":"=h"(r.u):"f"(v));return r;}
IN u32 pack(float a,float b){u32 r;asm("cvt.rn.bf16x2.f32 %0,%1,%2;":"=r"(r):"f"(b),"f"(a));return r;}
#elif KIND==2
struct alignas(2) elem{unsigned short u;};
IN float tof(elem v){float r;asm("cvt.f32.f16 %0,%1;":"=f"(r):"h"(v.u));return r;}
IN elem toe(float v){elem r;asm("cvt.rn.f16.f32 %0,%1;":"=h"(r.u):"f"(v));return r;}
IN u32 pack(float a,float b){u32 r;asm("cvt.rn.f16x2.f32 %0,%1,%2;":"=r"(r):"f"(b),"f"(a));return r;}
#else
typedef float elem;
IN float tof(elem v){return v;}
IN elem toe(float v){return v;}
#endif

// ---------------------------------------------------------------- functions
// Of NaN they make what torch makes of it: NaN, but 0 of its sign. fmaxf and fminf would leave NaN out.
#if HALF&&FAST
IN float r_tanh(float v){float r;asm("tanh.approx.f32 %0,%1;":"=f"(r):"f"(v));return r;}
IN float r_sigmoid(float v){return fmaf(r_tanh(0.5f*v),0.5f,0.5f);}
#else
IN float r_sigmoid(float v){return __fdividef(1.f,1.f+__expf(-v));}
IN float r_tanh(float v){return 1.f-__fdividef(2.f,1.f+__expf(2.f*v));}
#endif
IN float r_exp(float v){return expf(v);}
IN float r_log(float v){return logf(v);}
IN float r_log1p(float v){return log1pf(v);}
IN float r_relu(float v){return v<=0.f?0.f:v;}
IN float r_abs(float v){return fabsf(v);}
IN float r_sign(float v){return v>0.f?1.f:v<0.f?-1.f:0.f;}
IN float r_sqrt(float v){return sqrtf(v);}
IN float r_rsqrt(float v){return rsqrtf(v);}
IN float r_sin(float v){return sinf(v);}
IN float r_cos(float v){return cosf(v);}
IN float r_erf(float v){return erff(v);}
IN float r_max(float a,float b){return a!=a?a:b!=b?b:a>b?a:b;}
IN float r_min(float a,float b){return a!=a?a:b!=b?b:a<b?a:b;}
