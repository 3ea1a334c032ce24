// One step of a Transformer that writes, batch 1, as a single kernel: every block of threads holds its share of each matrix'
// rows, and blocks hand numbers to each other through the L2 cache. Follows numbers.cu.
//
// Numbers travel as words of 64 bits, value and epoch (the number of the step) together: a reader polls until all its words
// carry this step's epoch. So no fence, flag or barrier is needed, and nothing has to be cleared. Every block keeps the whole
// residual stream x in shared memory and adds what the others publish in the same order: all have the same bits.
//
// A weight does not depend on what was computed before it: each warp loads its first rows into registers before it waits. (To ask
// the L2 cache for the rows of the next layer as well made it slower on an H200: the requests stand before those that poll.)
//
// Gain and shift of a norm are folded into the matrix that follows it, and biases are added by the block that has the row.
// A layer is five exchanges: N(x) -> q, k, v; attention, a block per head; W^O; N(x) -> f(W₁ …); W₂. W^O and W₂ are split
// along their depth into SO and SD slices, whose sums the readers add.
//
// Defined before: WARPS GRID D F HEADS KEPT DH LAYERS VOCAB CAP SO SD GATED ACT RMS ROTATED BIAS, and EPS and SCALE as floats.
typedef unsigned long long u64;
#define THREADS (WARPS*32)
#define VEC ((int)(16/sizeof(elem)))
#define KV (KEPT*DH)
#define QKV (D+2*KV)
#define SPIN 4000000
#define BYTES ((int)sizeof(elem))
struct Wait{bool over;int*aborted,*reported;};
IN void give_up(Wait&w){w.over=true;*(volatile int*)w.aborted=1;*(volatile int*)w.reported=1;__threadfence_system();}
IN uint4 load_weights(const void*p){uint4 v;asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];":"=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w):"l"(p));return v;}
IN uint4 load_past(const void*p){uint4 v;asm volatile("ld.global.v4.u32 {%0,%1,%2,%3},[%4];":"=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w):"l"(p):"memory");return v;}
IN void publish(u64*p,float v,u32 epoch){asm volatile("st.relaxed.gpu.global.u64 [%0],%1;"::"l"(p),"l"((u64)epoch<<32|__float_as_uint(v)):"memory");}
IN void peek(const u64*p,u64&a,u64&b){asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1},[%2];":"=l"(a),"=l"(b):"l"(p):"memory");}
IN float load_vector(const float*p){float v;asm volatile("ld.global.nc.f32 %0,[%1];":"=f"(v):"l"(p));return v;}

#if KIND==0
IN void unpack(uint4 q,float*v){v[0]=__uint_as_float(q.x);v[1]=__uint_as_float(q.y);v[2]=__uint_as_float(q.z);v[3]=__uint_as_float(q.w);}
#else
IN float low(u32 w){elem e;e.u=(unsigned short)w;return tof(e);}
IN float high(u32 w){elem e;e.u=(unsigned short)(w>>16);return tof(e);}
IN void unpack(uint4 q,float*v){v[0]=low(q.x);v[1]=high(q.x);v[2]=low(q.y);v[3]=high(q.y);v[4]=low(q.z);v[5]=high(q.z);v[6]=low(q.w);v[7]=high(q.w);}
#endif
IN float warp_sum(float v){UNROLL for(int o=16;o>0;o>>=1)v+=__shfl_xor_sync(~0u,v,o);return v;}
IN float warp_max(float v){UNROLL for(int o=16;o>0;o>>=1)v=fmaxf(v,__shfl_xor_sync(~0u,v,o));return v;}
IN float activation(float v){
#if ACT==0
  return v<=0.f?0.f:v;
#elif ACT==1
  return 0.5f*v*(1.f+erff(v*0.70710678f));
#elif ACT==2
  return 0.5f*v*(1.f+tanhf(0.7978845608f*(v+0.044715f*v*v*v)));
#else
  return v/(1.f+expf(-v));
#endif
}

// S sums of N numbers each, from the places of S·N words, added up and given to put(place, sum).
template<int N,int S,class P> IN void gather(const u64*from,u32 epoch,Wait&wait,P put){
  for(int i=threadIdx.x;i<N/2;i+=THREADS){
    u64 a[S],b[S];bool ok;int spin=0;
    UNROLL for(int s=0;s<S;s++)peek(from+s*N+2*i,a[s],b[s]);
    do{ok=true;
      UNROLL for(int s=0;s<S;s++)if((u32)(a[s]>>32)!=epoch||(u32)(b[s]>>32)!=epoch){ok=false;peek(from+s*N+2*i,a[s],b[s]);}
      if(++spin>SPIN)give_up(wait);
    }while(!ok&&!wait.over);
    float u=0.f,v=0.f;
    UNROLL for(int s=0;s<S;s++){u+=__uint_as_float((u32)a[s]);v+=__uint_as_float((u32)b[s]);}
    put(2*i,u);put(2*i+1,v);
  }
}

// This block's share of the product of a matrix (N·ROWS, K): items of ROWS rows and one of S slices of the depth, a warp each.
template<int N,int K,int S,int ROWS> struct Work{
  static constexpr int KS=K/S,CH=(KS+32*VEC-1)/(32*VEC),MOST=(N*S+GRID-1)/GRID,PER=(MOST+WARPS-1)/WARPS;
  static constexpr int FIT=12/(CH*ROWS)<1?1:12/(CH*ROWS),DEEP=PER<FIT?PER:FIT;
  static_assert(K%S==0&&KS%VEC==0,"slices of whole vectors");
  uint4 w[DEEP][ROWS][CH];
  float b[DEEP];  // the bias of an item, if it has the first slice
  int first,end;
  IN const elem*at(const elem*m,int item,int r){return m+((L)(item%N)*ROWS+r)*K+item/N*KS;}
  IN void load(const elem*m,const float*bias,int j,int slot){
    const int item=first+(threadIdx.x>>5)+j*WARPS,lane=threadIdx.x&31;
    b[slot]=bias&&item<end&&item<N?load_vector(bias+item):0.f;
    UNROLL for(int r=0;r<ROWS;r++)UNROLL for(int c=0;c<CH;c++){
      const int k=(c*32+lane)*VEC;
      w[slot][r][c]=item<end&&(KS%(32*VEC)==0||k<KS)?load_weights(at(m,item,r)+k):make_uint4(0,0,0,0);
    }
  }
  IN void share(){first=(int)((L)N*S*blockIdx.x/GRID);end=(int)((L)N*S*(blockIdx.x+1)/GRID);}
  IN void begin(const elem*m,const float*bias){
    UNROLL for(int j=0;j<DEEP;j++)load(m,bias,j,j);
  }
  // x (K) in shared memory; put(item, sums of its rows, bias) by one lane.
  template<class P> IN void run(const elem*m,const float*bias,const float*x,P put){
    const int warp=threadIdx.x>>5,lane=threadIdx.x&31;
    for(int j0=0;j0<PER;j0+=DEEP)UNROLL for(int d=0;d<DEEP;d++){
      const int item=first+warp+(j0+d)*WARPS;
      if(item>=end)continue;
      float sum[ROWS];
      const float*from=x+item/N*KS;
      UNROLL for(int r=0;r<ROWS;r++)sum[r]=0.f;
      UNROLL for(int c=0;c<CH;c++){
        const int k=(c*32+lane)*VEC;
        if(KS%(32*VEC)==0||k<KS)UNROLL for(int r=0;r<ROWS;r++){
          float v[VEC];unpack(w[d][r][c],v);
          UNROLL for(int e=0;e<VEC;e+=4){
            const float4 u=*(const float4*)(from+k+e);
            sum[r]=fmaf(v[e],u.x,fmaf(v[e+1],u.y,fmaf(v[e+2],u.z,fmaf(v[e+3],u.w,sum[r]))));
          }
        }
      }
      const float own=b[d];
      if(j0+d+DEEP<PER)load(m,bias,j0+d+DEEP,d);
      UNROLL for(int r=0;r<ROWS;r++)sum[r]=warp_sum(sum[r]);
      if(lane==0)put(item,sum,own);
    }
  }
};

// y = (x − mean) / √(variance + ε), without gain and shift, which are part of the matrix that follows; x and y (D) in shared memory.
// Ends with a barrier.
IN void normalise(const float*x,float*y){
  const int lane=threadIdx.x&31;
  float mean=0.f,spread=0.f;
#if !RMS
  UNROLL for(int i=4*lane;i<D;i+=128){const float4 v=*(const float4*)(x+i);mean+=(v.x+v.y)+(v.z+v.w);}
  mean=warp_sum(mean)*(1.f/D);
#endif
  UNROLL for(int i=4*lane;i<D;i+=128){
    const float4 v=*(const float4*)(x+i);const float a=v.x-mean,b=v.y-mean,c=v.z-mean,d=v.w-mean;
    spread+=fmaf(a,a,b*b)+fmaf(c,c,d*d);
  }
  const float by=rsqrtf(warp_sum(spread)*(1.f/D)+EPS);
  for(int i=threadIdx.x;i<D;i+=THREADS)y[i]=(x[i]-mean)*by;
  __syncthreads();
}

struct Best{float most,sum,value;int index;};  // of logits: the greatest, Σ e^(logit − greatest); of those allowed: the greatest, and which
IN Best better(Best a,Best b){
  Best r;r.most=fmaxf(a.most,b.most);
  r.sum=(a.sum>0.f?a.sum*expf(a.most-r.most):0.f)+(b.sum>0.f?b.sum*expf(b.most-r.most):0.f);
  const bool first=a.value>b.value||(a.value==b.value&&a.index<b.index);
  r.value=first?a.value:b.value;r.index=first?a.index:b.index;
  return r;
}
IN Best beside(Best v,int o){
  Best r;r.most=__shfl_xor_sync(~0u,v.most,o);r.sum=__shfl_xor_sync(~0u,v.sum,o);
  r.value=__shfl_xor_sync(~0u,v.value,o);r.index=(int)__float_as_uint(__shfl_xor_sync(~0u,__uint_as_float((u32)v.index),o));
  return r;
}
#define NOTHING {-3e38f,0.f,-3e38f,0x7FFFFFFF}

// Offsets of a layer's matrices, and of its biases (float32).
#define M_QKV 0
#define M_OUT (M_QKV+(L)QKV*D)
#define M_UP (M_OUT+(L)D*D)
#define M_DOWN (M_UP+(L)F*(1+GATED)*D)
#define M_LAYER (M_DOWN+(L)D*F)
#define B_QKV 0
#define B_OUT (B_QKV+QKV)
#define B_UP (B_OUT+D)
#define B_DOWN (B_UP+F)
#define B_LAYER (B_DOWN+D)
#define BIAS_OF(at) (BIAS?b+(at):(const float*)0)
// Words that a layer publishes.
#define X_QKV 0
#define X_SEEN (X_QKV+QKV)
#define X_OUT (X_SEEN+D)
#define X_UP (X_OUT+SO*D)
#define X_DOWN (X_UP+F)
#define X_LAYER (X_DOWN+SD*D)

// What head `head` sees: attention of this place's query to all places so far. K and V of this place are kept.
#define LP (DH/VEC)
#define PW (32/LP)
#define EARLY 4  // turns whose keys and values are loaded before this place's are there
IN void attend(int head,int layer,int place,elem*past,const u64*words,const float*angles,u64*out,float*room,u32 epoch,Wait&wait){
  const int tid=threadIdx.x,warp=tid>>5,lane=tid&31,kept=head/(HEADS/KEPT),mine=lane%LP*VEC,begin=warp*PW+lane/LP;
  float*q=room,*part=q+3*DH,*totals=part+WARPS*DH,*k=q+DH,*v=k+DH;
  elem*keys=past+((L)(2*layer)*KEPT+kept)*CAP*DH,*values=keys+(L)KEPT*CAP*DH;
  uint4 some_keys[EARLY],some_values[EARLY];
  UNROLL for(int n=0;n<EARLY;n++){
    const int t=begin+n*WARPS*PW;
    some_keys[n]=some_values[n]=make_uint4(0,0,0,0);
    if(t<place){some_keys[n]=load_past(keys+(L)t*DH+mine);some_values[n]=load_past(values+(L)t*DH+mine);}
  }
  float*scores=totals+WARPS;
  const int from=(tid/(DH/2)==0?head*DH:tid/(DH/2)==1?D+kept*DH:D+KV+kept*DH)+tid%(DH/2)*2;
  if(tid<3*DH/2){
    u64 a,b;int spin=0;
    do{peek(words+X_QKV+from,a,b);if(++spin>SPIN)give_up(wait);}while(!wait.over&&((u32)(a>>32)!=epoch||(u32)(b>>32)!=epoch));
    float u=__uint_as_float((u32)a),w=__uint_as_float((u32)b);
#if ROTATED
    const int pair=tid%(DH/2);
    if(tid<DH&&pair<ROTATED/2){
      const float*angle=angles+((L)place*(ROTATED/2)+pair)*2;
      const float c=angle[0],s=angle[1],old=u;
      u=old*c-w*s;w=old*s+w*c;
    }
#endif
    if(tid<DH/2){u*=rsqrtf((float)DH);w*=rsqrtf((float)DH);}
    else{
      const elem e=toe(u),f=toe(w);u=tof(e);w=tof(f);
      if(head%(HEADS/KEPT)==0){elem*to=(tid<DH?keys:values)+(L)place*DH+tid%(DH/2)*2;to[0]=e;to[1]=f;}
    }
    q[2*tid]=u;q[2*tid+1]=w;
  }
  __syncthreads();
  float query[VEC],most=-3e38f,total=0.f,sums[VEC];
  UNROLL for(int e=0;e<VEC;e++){query[e]=q[mine+e];sums[e]=0.f;}
#define SCORE(t,loaded) {\
    float u[VEC],sum=0.f;\
    if((t)<place)unpack(loaded,u);else UNROLL for(int e=0;e<VEC;e++)u[e]=k[mine+e];\
    UNROLL for(int e=0;e<VEC;e++)sum=fmaf(u[e],query[e],sum);\
    UNROLL for(int o=LP/2;o>0;o>>=1)sum+=__shfl_xor_sync(~0u,sum,o);\
    if((t)<=place&&lane%LP==0)scores[t]=sum;}
  UNROLL for(int n=0;n<EARLY;n++)if(warp*PW+n*WARPS*PW<=place){const int t=begin+n*WARPS*PW;SCORE(t,some_keys[n])}
  for(int t0=warp*PW+EARLY*WARPS*PW;t0<=place;t0+=WARPS*PW){
    const int t=t0+lane/LP;uint4 w=make_uint4(0,0,0,0);
    if(t<place)w=load_past(keys+(L)t*DH+mine);
    SCORE(t,w)
  }
  __syncthreads();
  for(int t=lane;t<=place;t+=32)most=fmaxf(most,scores[t]);
  most=warp_max(most);
#define SUM(t,loaded) {\
    float u[VEC];\
    if((t)<place)unpack(loaded,u);else UNROLL for(int e=0;e<VEC;e++)u[e]=v[mine+e];\
    const float weight=expf(scores[t]-most);\
    total+=weight;\
    UNROLL for(int e=0;e<VEC;e++)sums[e]=fmaf(weight,u[e],sums[e]);}
  UNROLL for(int n=0;n<EARLY;n++){const int t=begin+n*WARPS*PW;if(t<=place)SUM(t,some_values[n])}
  for(int t=begin+EARLY*WARPS*PW;t<=place;t+=WARPS*PW){
    uint4 w=make_uint4(0,0,0,0);
    if(t<place)w=load_past(values+(L)t*DH+mine);
    SUM(t,w)
  }
  __syncwarp();
  UNROLL for(int o=LP;o<32;o<<=1){
    total+=__shfl_xor_sync(~0u,total,o);
    UNROLL for(int e=0;e<VEC;e++)sums[e]+=__shfl_xor_sync(~0u,sums[e],o);
  }
  if(lane<LP)UNROLL for(int e=0;e<VEC;e++)part[warp*DH+mine+e]=sums[e];
  if(lane==0)totals[warp]=total;
  __syncthreads();
  if(tid<DH){
    float sum=0.f,all=0.f;
    UNROLL for(int w=0;w<WARPS;w++){sum+=part[w*DH+tid];all+=totals[w];}
    publish(out+head*DH+tid,sum/all,epoch);
  }
}

// state: place, epoch. tokens (CAP + 1): what is read at each place; -1 where the step before decides. least: the lowest symbol it may choose.
extern "C" __global__ void __launch_bounds__(THREADS,1) whole_step(const elem*matrices,const float*biases,const elem*table,const elem*head,
    const float*head_bias,const float*places,const float*angles,elem*past,u64*words,u64*results,int*state,
    int*tokens,float*log_probs,float*logits,int*aborted,int*reported,int least){
  extern __shared__ __align__(16) char memory[];
  float*x=(float*)memory,*y=x+D,*room=y+(D>F?D:F);
  const int tid=threadIdx.x,warp=tid>>5,lane=tid&31;
  Wait wait={false,aborted,reported};
  Work<QKV,D,1,1> inward;Work<D,D,SO,1> outward;Work<F,D,1,1+GATED> up;Work<D,F,SD,1> down;Work<VOCAB,D,1,1> last;
  inward.share();outward.share();up.share();down.share();last.share();
  const float*b=biases;
  inward.begin(matrices+M_QKV,BIAS_OF(B_QKV));
  const int place=state[0];const u32 epoch=(u32)state[1];
  const int token=tokens[place],next=tokens[place+1];
  for(int i=tid;i<D;i+=THREADS)x[i]=tof(table[(L)token*D+i])*SCALE+(places?places[(L)place*D+i]:0.f);
  __syncthreads();
  for(int layer=0;layer<LAYERS;layer++){
    const elem*m=matrices+layer*M_LAYER,*after=m+M_LAYER;
    b=biases+(L)layer*B_LAYER;
    u64*w=words+(L)layer*X_LAYER;
    const bool more=layer+1<LAYERS;
    if(layer){
      gather<D,SD>(w-X_LAYER+X_DOWN,epoch,wait,[&](int i,float u){x[i]+=u;});
      __syncthreads();
    }
    normalise(x,y);
    inward.run(m+M_QKV,BIAS_OF(B_QKV),y,[&](int i,const float*s,float own){publish(w+X_QKV+i,s[0]+own,epoch);});
    outward.begin(m+M_OUT,BIAS_OF(B_OUT));
    if(blockIdx.x<HEADS)attend(blockIdx.x,layer,place,past,w,angles,w+X_SEEN,room,epoch,wait);
    __syncthreads();  // y is read no more
    gather<D,1>(w+X_SEEN,epoch,wait,[&](int i,float u){y[i]=u;});
    __syncthreads();
    outward.run(m+M_OUT,BIAS_OF(B_OUT),y,[&](int i,const float*s,float own){publish(w+X_OUT+i,s[0]+own,epoch);});
    up.begin(m+M_UP,BIAS_OF(B_UP));
    gather<D,SO>(w+X_OUT,epoch,wait,[&](int i,float u){x[i]+=u;});
    __syncthreads();
    normalise(x,y);
    up.run(m+M_UP,BIAS_OF(B_UP),y,[&](int i,const float*s,float own){
#if GATED
      publish(w+X_UP+i,activation(s[0])*s[1],epoch);
#else
      publish(w+X_UP+i,activation(s[0]+own),epoch);
#endif
    });
    down.begin(m+M_DOWN,BIAS_OF(B_DOWN));
    __syncthreads();  // y is read no more
    for(int s=down.first/D;s<SD&&s*D<down.end;s++)gather<F/SD,1>(w+X_UP+s*(F/SD),epoch,wait,[&](int i,float u){y[s*(F/SD)+i]=u;});
    __syncthreads();
    down.run(m+M_DOWN,BIAS_OF(B_DOWN),y,[&](int i,const float*s,float own){publish(w+X_DOWN+i,s[0]+own,epoch);});
    if(more){
      b=biases+(L)(layer+1)*B_LAYER;
      inward.begin(after+M_QKV,BIAS_OF(B_QKV));
    }
  }
  Best best=NOTHING;
  if(next<0){
    last.begin(head,head_bias);
    gather<D,SD>(words+(L)(LAYERS-1)*X_LAYER+X_DOWN,epoch,wait,[&](int i,float u){x[i]+=u;});
    __syncthreads();
    normalise(x,y);
    last.run(head,head_bias,y,[&](int i,const float*s,float own){
      const float value=s[0]+own;
      logits[i]=value;
      const Best one={value,1.f,i>=least?value:-3e38f,i>=least?i:0x7FFFFFFF};
      best=better(best,one);
    });
  }
  // Lane 0 of each warp has its best; block 0 gathers those of all blocks, so that it goes on when every block has read the state.
  Best*found=(Best*)room;
  __syncthreads();
  if(lane==0)found[warp]=best;
  __syncthreads();
  if(tid==0){
    for(int w=1;w<WARPS;w++)best=better(best,found[w]);
    u64*to=results+blockIdx.x*4;
    publish(to,best.most,epoch);publish(to+1,best.sum,epoch);publish(to+2,best.value,epoch);publish(to+3,__uint_as_float((u32)best.index),epoch);
  }
  if(blockIdx.x||warp)return;
  best=NOTHING;
  for(int b=lane;b<GRID;b+=32){
    u64 a[4];int spin=0;
    do{peek(results+b*4,a[0],a[1]);peek(results+b*4+2,a[2],a[3]);if(++spin>SPIN)give_up(wait);}
    while(!wait.over&&((u32)(a[0]>>32)!=epoch||(u32)(a[1]>>32)!=epoch||(u32)(a[2]>>32)!=epoch||(u32)(a[3]>>32)!=epoch));
    const Best one={__uint_as_float((u32)a[0]),__uint_as_float((u32)a[1]),__uint_as_float((u32)a[2]),(int)(u32)a[3]};
    best=better(best,one);
  }
  __syncwarp();
  UNROLL for(int o=16;o>0;o>>=1)best=better(best,beside(best,o));
  if(lane==0){
    if(next<0){tokens[place+1]=best.index;log_probs[place+1]=best.value-best.most-logf(best.sum);}
    state[0]=place+1;state[1]=(int)(epoch+1);
  }
}
