// How a block of COLS threads, one for each column of a row, reads sequences: groups of STEPS steps are copied to shared memory
// while earlier ones are computed, STAGES - 1 groups ahead, so that reads wait for the memory's bandwidth and not for its latency.
// WIDE: by asynchronous copies of 16 bytes, which need addresses to match.
// With one warp for each of an SM's schedulers every instruction counts: addresses are moved on, never computed again.
#define NAN __uint_as_float(0x7FFFFFFFu)
#define INFINITY __uint_as_float(0x7F800000u)
#if WIDE
IN u32 inside(const void*p){return (u32)__cvta_generic_to_shared(p);}
IN void copy16(u32 to,const void*from,bool on){asm volatile("{.reg .pred q;setp.ne.u32 q,%2,0;@q cp.async.cg.shared.global [%0],[%1],16;}"::"r"(to),"l"(from),"r"((u32)on):"memory");}
IN void commit(){asm volatile("cp.async.commit_group;":::"memory");}
IN void await_group(){asm volatile("cp.async.wait_group %0;"::"n"(STAGES-2):"memory");}
#else
IN void commit(){}
IN void await_group(){}
#endif
// Writes of threads that have a column, with an address that the compiler moves on step by step instead of computing it again.
IN void put(float*&p,float v,L ahead,bool on){asm volatile("{.reg .pred q;setp.ne.u32 q,%2,0;@q st.global.b32 [%0],%1;}"::"l"(p),"f"(v),"r"((u32)on):"memory");p+=ahead;asm volatile("":"+l"(p));}
IN void keep_known(L&v){asm volatile("":"+l"(v));}
IN float number(float v){return v;}
#if HALF
IN float number(elem v){return tof(v);}
IN void put(elem*&p,float v,L ahead,bool on){asm volatile("{.reg .pred q;setp.ne.u32 q,%2,0;@q st.global.b16 [%0],%1;}"::"l"(p),"h"(toe(v).u),"r"((u32)on):"memory");p+=ahead;asm volatile("":"+l"(p));}
#endif
// A sequence on its way into the ring: the next group's steps, in the order of the pass.
template<class E> struct Stream{
#if WIDE
  static constexpr int per=16/(int)sizeof(E),row=COLS/per;  // numbers of a copy; copies of a row
#endif
  const E*from;L pace;bool on;int first;
#if WIDE
  u32 to;
#else
  E*to;
#endif
  // `start` is this block's first column of the first step's row; `pace` leads from row to row; `width` columns are left.
  IN Stream(E*ring,const E*start,L stride,L width){
    const int tid=threadIdx.x;
#if WIDE
    const int j=tid%row*per;
    first=tid/row;from=start+first*stride+j;pace=per*stride;on=j<width;to=inside(ring+first*COLS+j);keep_known(pace);
#else
    first=0;from=start+tid;pace=stride;on=tid<width;to=ring+tid;
#endif
  }
  IN void next(int slot,int count){
#if WIDE
    constexpr int size=(int)sizeof(E);
    const u32 place=to+slot*(STEPS*COLS*size);
    if(count==STEPS){UNROLL for(int k=0;k<STEPS/per;k++)copy16(place+k*per*COLS*size,from+k*pace,on);}
    else{UNROLL for(int k=0;k<STEPS/per;k++)copy16(place+k*per*COLS*size,from+k*pace,on&&first+k*per<count);}
    from+=STEPS/per*pace;
#else
    if(on)for(int i=0;i<count;i++)to[(slot*STEPS+i)*COLS]=from[i*pace];
    from+=STEPS*pace;
#endif
  }
};

