// What every persistent kernel begins with, after numbers.cu: publishing, polling, and the product.
//
// Rows of the batch go by eights, the narrow side of the tensor cores' product; a block of threads owns HS columns of
// NT such tiles and keeps its slice of every matrix in registers, what does not fit there in shared memory.
//
// How blocks exchange numbers: the host fills an array with NONE, a NaN that no conversion makes (word and pack turn every
// NaN into 0x7FFF…). A block publishes by plain stores, and a block that needs the numbers reads until none of them is NONE.
// Loads and stores are "relaxed" at the scope of the GPU: they go past the SM's own cache, which is not coherent. No fence,
// flag or barrier is needed, since the number is its own flag: a word is written whole, and nothing is concluded from its
// arrival about any other word. Every step has its own place in the array, so nothing is ever overwritten.
// Blocks of a cluster may send into each other's shared memory instead, below.
#define NONE 0xFFFFFFFFu
#define NOT_A_NUMBER __uint_as_float(0x7FFFFFFFu)  // and not NONE, so that a block that polls it goes on
#define NTH (WARPS*32)
#define BM (8*NT)
#define CELLS (BM*HS)
#define EPT ((CELLS+NTH-1)/NTH)
#define NSL (HP/HS)
#define VEC ((int)(16/sizeof(elem)))
#define KBLK (4*VEC)
#define EACH UNROLL for(int i=0;i<EPT;i++)if(CELLS%NTH==0||(tid&~31)+i*NTH<CELLS)
#define SPIN 4000000

// ---------------------------------------------------------------- a wait that times out
// A thread that has waited too long gives up: it sets a word for the GPU (``aborted``) and one for the host (``reported``), and
// from then on waits no more. What it did not get is NaN. The fence comes before anything it publishes afterwards, so that
// a block that has read a wrong number finds ``aborted`` set when it ends, and replaces its results by NaN.
struct Wait{bool over;int*aborted,*reported;};
IN void give_up(Wait&w){w.over=true;*(volatile int*)w.aborted=1;*(volatile int*)w.reported=1;__threadfence_system();}
IN bool is_set(const int*p){u32 v;asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];":"=r"(v):"l"(p):"memory");return v;}

// ---------------------------------------------------------------- publishing and polling
template<int N> struct Wide{static constexpr int b=N*(int)sizeof(elem),v=b%16==0?16:b%8==0?8:b%4==0?4:(int)sizeof(elem);};
template<int N> struct alignas(Wide<N>::v) Record{elem v[N];};
IN u32 word(float v){return v!=v?0x7FFFFFFFu:__float_as_uint(v);}  // a NaN, but not NONE
IN void store4(void*p,float a,float b,float c,float d){asm volatile("st.relaxed.gpu.global.v4.u32 [%0],{%1,%2,%3,%4};"::"l"(p),"r"(word(a)),"r"(word(b)),"r"(word(c)),"r"(word(d)):"memory");}
IN void store(void*p,u32 a){asm volatile("st.relaxed.gpu.global.u32 [%0],%1;"::"l"(p),"r"(a):"memory");}
IN uint4 load4(const void*p){uint4 v;asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3},[%4];":"=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w):"l"(p):"memory");return v;}
IN void touch(const void*p){asm volatile("prefetch.global.L2 [%0];"::"l"(p));}
IN bool ready(uint4 v){return v.x!=NONE&&v.y!=NONE&&v.z!=NONE&&v.w!=NONE;}
// One number of this column; neighbouring columns share a word when numbers are 16 bits wide.
IN void put(elem*p,float v,bool on){
#if HALF
  float mate=__shfl_xor_sync(~0u,v,1);
  if(on&&!(threadIdx.x&1))store(p,pack(v,mate));
#else
  if(on)store(p,word(v));
#endif
}
// Two numbers of this column at p and q: even columns write the words of p, odd ones those of q.
IN void put2(elem*p,elem*q,float v,float w,bool on){
#if HALF
  bool odd=threadIdx.x&1;
  float got=__shfl_xor_sync(~0u,odd?v:w,1);
  if(on)store(odd?q-1:p,odd?pack(got,w):pack(v,got));
#else
  if(on){store(p,word(v));store(q,word(w));}
#endif
}

// ---------------------------------------------------------------- blocks of a cluster
// They write into each other's shared memory, at the offset they know from their own. The hardware counts the bytes that
// arrive at a barrier beside the place (complete_tx), so a wait there also orders the reads that follow it. Places and barriers
// are there twice, for even and odd steps: a block that writes to a place again has received what the place's owner sent
// after it had read it, two steps before.
IN u32 inside(const void*p){return (u32)__cvta_generic_to_shared(p);}
IN void hand4(void*p,void*bar,int to,uint4 v){asm volatile("{.reg .u32 a,b;mapa.shared::cluster.u32 a,%0,%2;mapa.shared::cluster.u32 b,%1,%2;st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [a],{%3,%4,%5,%6},[b];}"::"r"(inside(p)),"r"(inside(bar)),"r"(to),"r"(v.x),"r"(v.y),"r"(v.z),"r"(v.w):"memory");}
IN void set_up(void*bar){asm volatile("mbarrier.init.shared::cta.b64 [%0],1;"::"r"(inside(bar)):"memory");}
IN void expect(void*bar,int bytes){asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;"::"r"(inside(bar)),"r"(bytes):"memory");}
IN bool arrived(const void*bar,u32 odd){u32 r;asm volatile("{.reg .pred p;mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2;selp.u32 %0,1,0,p;}":"=r"(r):"r"(inside(bar)),"r"(odd):"memory");return r;}
IN L nanoseconds(){L t;asm volatile("mov.u64 %0,%%globaltimer;":"=l"(t));return t;}
IN void meet(){asm volatile("fence.mbarrier_init.release.cluster;barrier.cluster.arrive.aligned;barrier.cluster.wait.aligned;":::"memory");}
// Wait for all that is sent to a barrier at this beat, and have it wait for as much again. A thread whose wait timed out
// neither waits nor sends any more: no more bytes may arrive at a barrier than it expects.
IN void receive(void*bar,int beat,int bytes,bool first,Wait&wait){
  if(!bytes)return;  // past the depth
  u32 odd=(u32)(beat-1)>>1&1;
  if(!arrived(bar,odd)){L since=nanoseconds();while(!wait.over&&!arrived(bar,odd))if(nanoseconds()-since>2000000000LL)give_up(wait);}
  if(first&&!wait.over)expect(bar,bytes);
}
// One number of this column to all blocks: each lane sends 16 bytes of a row to some of them. DEEP: the numbers of a
// row that one team of warps multiplies; each has a barrier.
template<int ROWL,int DEEP> IN void hand(elem*rows,char*bars,int at,float v,int slice,int i,bool over){
  const int lane=threadIdx.x&31,from=lane%(32/VEC)*VEC,e=(threadIdx.x&~31)+i*NTH+from,first=lane/(32/VEC);
#if HALF
  u32 w=pack(v,__shfl_xor_sync(~0u,v,1));
#else
  u32 w=word(v);
#endif
  uint4 q;q.x=__shfl_sync(~0u,w,from,32);q.y=__shfl_sync(~0u,w,from+VEC/4,32);q.z=__shfl_sync(~0u,w,from+VEC/2,32);q.w=__shfl_sync(~0u,w,from+VEC/4*3,32);
  const int k=at+slice*HS+e%HS;
  UNROLL for(int n=0;n<NSL;n+=VEC)if(n+first<NSL&&!over)hand4(rows+(e/HS)*ROWL+k,bars+k/DEEP*8,(n+first+slice)%NSL,q);
}
// Bytes of the numbers a team multiplies, in all rows.
template<int DEPTH,int DEEP> IN int share_of(int team){int n=DEPTH-team*DEEP;return (n<0?0:n<DEEP?n:DEEP)*BM*(int)sizeof(elem);}

// ---------------------------------------------------------------- reductions of a row
#ifndef INFINITY
#define INFINITY __int_as_float(0x7F800000)
#endif
// A strip is what one warp has of a row: RW columns; NRS strips are a row, the last ones perhaps empty.
#define RW (HS<32?HS:32)
#define NRS (HP/RW)
IN float real_columns(int strip){return strip<H_/RW?(float)RW:strip==H_/RW?(float)(H_%RW):0.f;}
IN float column_share(int strip){return strip<H_/RW?1.f/RW:strip==H_/RW&&H_%RW?1.f/(H_%RW?H_%RW:1):0.f;}
IN float row_sum(float v){UNROLL for(int o=RW/2;o>0;o>>=1)v+=__shfl_xor_sync(~0u,v,o);return v;}
IN float first_of_row(float v){return __shfl_sync(~0u,v,0,RW);}
IN float row_max(float v){UNROLL for(int o=RW/2;o>0;o>>=1)v=r_max(v,__shfl_xor_sync(~0u,v,o));return v;}
// Over what all strips sent: lane k of a strip has those of strips k%SPAN, k%SPAN+SPAN, ...
#define WHOLE(n) (NRS<=n||RW<=n)
#define SPAN (WHOLE(1)?1:WHOLE(2)?2:WHOLE(4)?4:WHOLE(8)?8:WHOLE(16)?16:32)
#define TURNS ((NRS+SPAN-1)/SPAN)
IN float strips_sum(float v){UNROLL for(int o=SPAN/2;o>0;o>>=1)v+=__shfl_xor_sync(~0u,v,o);return v;}
IN float strips_max(float v){UNROLL for(int o=SPAN/2;o>0;o>>=1)v=r_max(v,__shfl_xor_sync(~0u,v,o));return v;}
// N numbers of one strip of a row, as soon as they are there. Each word is checked by itself: a load of sixteen bytes
// may see some words of a store and not yet others.
template<int N> IN void take(const float*p,float*to,Wait&wait){
  u32 v[N];bool ok;int spin=0;
  do{ok=true;
    UNROLL for(int k=0;k<N;k+=4){uint4 q=load4(p+k);v[k]=q.x;v[k+1]=q.y;v[k+2]=q.z;v[k+3]=q.w;}
    UNROLL for(int k=0;k<N;k++)ok=ok&&v[k]!=NONE;
    if(++spin>SPIN)give_up(wait);
  }while(!ok&&!wait.over);
  UNROLL for(int k=0;k<N;k++)to[k]=__uint_as_float(v[k]);
}

// ---------------------------------------------------------------- the product
IN u32 operand(u32 v){
#if HALF
  return v;
#else
  u32 r;asm("cvt.rna.tf32.f32 %0,%1;":"=r"(r):"f"(__uint_as_float(v)));return r;
#endif
}
IN uint4 operand(uint4 v){return make_uint4(operand(v.x),operand(v.y),operand(v.z),operand(v.w));}
IN void mma(float*c,u32 a0,u32 a1,u32 a2,u32 a3,u32 b0,u32 b1){
#if KIND==1
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
#elif KIND==2
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
#endif
  :"+f"(c[0]),"+f"(c[1]),"+f"(c[2]),"+f"(c[3]):"r"(a0),"r"(a1),"r"(a2),"r"(a3),"r"(b0),"r"(b1));
}
// This block's rows of a matrix (out·HP, DEPTH): OUT·HS of them, MT tiles of 16. Lane q of four holds VEC neighbours
// along the depth, so that a load of 16 bytes is what the tensor cores want. Each warp owns KB blocks of the depth,
// the first KREG of them in registers. Where MS warps form a team they own the same blocks, and MT tiles of rows each.
template<int DEPTH,int OUT,int MT,int KB,int KREG,int MS> IN void load_matrix(const elem*m,int slice,u32*a,uint4*spill){
  int lane=threadIdx.x&31,w=threadIdx.x>>5,q=lane&3;
  UNROLL for(int kb=0;kb<KB;kb++)UNROLL for(int mt=0;mt<MT;mt++){
    int k=(w/MS*KB+kb)*KBLK+q*VEC,r0=(w%MS*MT+mt)*16+(lane>>2),r1=r0+8;uint4 lo=make_uint4(0,0,0,0),hi=lo;
    if(k<DEPTH&&r0<OUT*HS)lo=operand(*(const uint4*)(m+((L)(r0/HS)*HP+slice*HS+r0%HS)*DEPTH+k));
    if(k<DEPTH&&r1<OUT*HS)hi=operand(*(const uint4*)(m+((L)(r1/HS)*HP+slice*HS+r1%HS)*DEPTH+k));
    if(kb<KREG){u32*d=a+(kb*MT+mt)*8;d[0]=lo.x;d[1]=hi.x;d[2]=lo.y;d[3]=hi.y;d[4]=lo.z;d[5]=hi.z;d[6]=lo.w;d[7]=hi.w;}
    else{uint4*d=spill+((w*(KB-KREG)+kb-KREG)*MT+mt)*64+lane;d[0]=lo;d[32]=hi;}
  }
}
// Each warp's share of the product of rows p[] (already at this lane's place), into part[warp][row][column].
// NEAR: the rows lie in this block's shared memory, and have come. The warps of a team fetch CH
// blocks of the depth each and hand them to the others of it by way of ``stage``.
IN void team(int which,int threads){asm volatile("bar.sync %0,%1;"::"r"(which+1),"r"(threads):"memory");}
template<int DEPTH,int MT,int KB,int KREG,int CH,int AC,int MS,bool NEAR> IN void product(const u32*a,const uint4*spill,uint4*stage,const elem*const*p,float*part,Wait&wait){
  int lane=threadIdx.x&31,w=threadIdx.x>>5;constexpr int ROWP=MS*MT*16+4;constexpr bool PAD=DEPTH!=WARPS/MS*KB*KBLK;
  int left=DEPTH-w/MS*KB*KBLK-(lane&3)*VEC;  // past the depth there are zeros, which no block publishes
  #define THERE(c) (!PAD||(own+(c))*KBLK<left)
  #define GET(c,n) (!THERE(c)?make_uint4(0,0,0,0):NEAR?*(const uint4*)(p[n]+(own+(c))*KBLK):load4(p[n]+(own+(c))*KBLK))
  #define STAGE(k,n) stage[((w/MS*KB+(k))*NT+(n))*32+lane]
  float acc[AC][NT][MT][4];
  UNROLL for(int c=0;c<AC;c++)UNROLL for(int n=0;n<NT;n++)UNROLL for(int m=0;m<MT;m++)UNROLL for(int i=0;i<4;i++)acc[c][n][m][i]=0.f;
  UNROLL for(int k0=0;k0<KB;k0+=CH*MS){
    uint4 v[CH][NT];bool ok;int spin=0;const int own=k0+w%MS*CH;
    UNROLL for(int c=0;c<CH;c++)if(k0+c<KB)UNROLL for(int n=0;n<NT;n++)v[c][n]=GET(c,n);
    if(!NEAR)do{ok=true;  // fetch again only what is missing
      UNROLL for(int c=0;c<CH;c++)if(k0+c<KB)UNROLL for(int n=0;n<NT;n++)if(!ready(v[c][n])){ok=false;v[c][n]=GET(c,n);}
      if(++spin>SPIN)give_up(wait);  // what is missing is NONE still, a NaN
    }while(!ok&&!wait.over);
    else if(wait.over)UNROLL for(int c=0;c<CH;c++)UNROLL for(int n=0;n<NT;n++)v[c][n]=make_uint4(NONE,NONE,NONE,NONE);
    __syncwarp();
    if(MS>1){UNROLL for(int c=0;c<CH;c++)UNROLL for(int n=0;n<NT;n++)STAGE(own+c,n)=operand(v[c][n]);team(w/MS,MS*32);}
    UNROLL for(int c=0;c<CH*MS;c++)if(k0+c<KB){
      const int kb=k0+c;u32 f[MT][8];uint4 x[NT];
      UNROLL for(int n=0;n<NT;n++)x[n]=MS>1?STAGE(kb,n):operand(v[c%CH][n]);
      UNROLL for(int m=0;m<MT;m++){
        if(kb<KREG){UNROLL for(int i=0;i<8;i++)f[m][i]=a[(kb*MT+m)*8+i];}
        else{const uint4*d=spill+((w*(KB-KREG)+kb-KREG)*MT+m)*64+lane;uint4 lo=d[0],hi=d[32];f[m][0]=lo.x;f[m][1]=hi.x;f[m][2]=lo.y;f[m][3]=hi.y;f[m][4]=lo.z;f[m][5]=hi.z;f[m][6]=lo.w;f[m][7]=hi.w;}
      }
      UNROLL for(int m=0;m<MT;m++)UNROLL for(int n=0;n<NT;n++)mma(acc[(2*kb)%AC][n][m],f[m][0],f[m][1],f[m][2],f[m][3],x[n].x,x[n].y);
      UNROLL for(int m=0;m<MT;m++)UNROLL for(int n=0;n<NT;n++)mma(acc[(2*kb+1)%AC][n][m],f[m][4],f[m][5],f[m][6],f[m][7],x[n].z,x[n].w);
    }
  }
  float*o=part+(w/MS*BM+(lane&3)*2)*ROWP+w%MS*MT*16+(lane>>2);
  UNROLL for(int n=0;n<NT;n++)UNROLL for(int m=0;m<MT;m++)UNROLL for(int i=0;i<4;i++){
    float s=acc[0][n][m][i];
    UNROLL for(int c=1;c<AC;c++)s+=acc[c][n][m][i];
    o[(n*8+(i&1))*ROWP+m*16+(i>>1)*8]=s;
  }
}
// What all warps have of one number of the product: fixed order, so that every run gives the same bits.
template<int MT,int MS> IN float total(const float*part,int row,int column){
  constexpr int ROWP=MS*MT*16+4;float s=0.f;
  UNROLL for(int w=0;w<WARPS/MS;w++)s+=part[(w*BM+row)*ROWP+column];
  return s;
}
IN int place(int t,int length,int reverse){return reverse&&t<length?length-1-t:t;}
