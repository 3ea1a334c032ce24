// Mamba's selective scan: h_t = exp(delta_t A) h_{t-1} + (delta_t u_t) B_t for each channel and each of its STATES numbers, and
// y_t = h_t C_t. Four threads share a channel, a block has CHANNELS of one row; a group of GROUP steps at a time lies in shared
// memory as float32. Forward leaves the states before each group; backward computes those within a group again, so the states of
// all steps are never stored. Every sum has one order: the same bits in every run.
#define STATES 16
#define LANES 4
#define OWN (STATES/LANES)
#define CHANNELS 64
#define GROUP 16
#define THREADS (CHANNELS*LANES)
#define WARPS (THREADS/32)
IN float power(float v){float r;asm("ex2.approx.ftz.f32 %0,%1;":"=f"(r):"f"(v));return r;}
IN float over_lanes(float v){v+=__shfl_xor_sync(~0u,v,1);return v+__shfl_xor_sync(~0u,v,2);}

// GROUP steps of CHANNELS channels, zeros where there are none.
IN void read_tile(float*to,const elem*from,L row,L T,L H,L t0,L first){
  UNROLL for(int k=0;k<GROUP*CHANNELS/THREADS;k++){
    const int at=k*THREADS+threadIdx.x,i=at/CHANNELS,j=at%CHANNELS;
    to[at]=t0+i<T&&first+j<H?tof(from[(row*T+t0+i)*H+first+j]):0.f;
  }
}
IN void read_states(float*to,const elem*from,L row,L T,L t0){
  const int i=threadIdx.x/STATES,n=threadIdx.x%STATES;
  to[threadIdx.x]=t0+i<T?tof(from[(row*T+t0+i)*STATES+n]):0.f;
}
IN void write_tile(elem*to,const float*from,L row,L T,L H,L t0,L first){
  UNROLL for(int k=0;k<GROUP*CHANNELS/THREADS;k++){
    const int at=k*THREADS+threadIdx.x,i=at/CHANNELS,j=at%CHANNELS;
    if(t0+i<T&&first+j<H)to[(row*T+t0+i)*H+first+j]=toe(from[at]);
  }
}

// rate: A times log2(e), (H, STATES); marks: the states before each group, (B, groups, H, STATES), or null.
extern "C" __global__ void __launch_bounds__(THREADS) forward(const elem*__restrict__ u, const elem*__restrict__ delta, const float*__restrict__ rate, const elem*__restrict__ b, const elem*__restrict__ c, const float*__restrict__ state, elem*y, float*last, float*marks, L T, L H) {
  __shared__ float us[GROUP*CHANNELS],ds[GROUP*CHANNELS],bs[GROUP*STATES],cs[GROUP*STATES];
  const L blocks=(H+CHANNELS-1)/CHANNELS,row=blockIdx.x/blocks,first=blockIdx.x%blocks*CHANNELS,groups=(T+GROUP-1)/GROUP;
  const int channel=threadIdx.x/LANES,n0=threadIdx.x%LANES*OWN;
  const L d=first+channel;
  const bool ok=d<H;
  float a[OWN],h[OWN];
  UNROLL for(int k=0;k<OWN;k++){a[k]=ok?rate[d*STATES+n0+k]:0.f;h[k]=ok?state[(row*H+d)*STATES+n0+k]:0.f;}
  for(L g=0;g<groups;g++){
    const L t0=g*GROUP;
    __syncthreads();
    read_tile(us,u,row,T,H,t0,first);read_tile(ds,delta,row,T,H,t0,first);
    read_states(bs,b,row,T,t0);read_states(cs,c,row,T,t0);
    if(marks&&ok){UNROLL for(int k=0;k<OWN;k++)marks[((row*groups+g)*H+d)*STATES+n0+k]=h[k];}
    __syncthreads();
    UNROLL for(int i=0;i<GROUP;i++){
      const float w=ds[i*CHANNELS+channel],x=w*us[i*CHANNELS+channel];
      float sum=0.f;
      UNROLL for(int k=0;k<OWN;k++){h[k]=fmaf(power(w*a[k]),h[k],x*bs[i*STATES+n0+k]);sum=fmaf(h[k],cs[i*STATES+n0+k],sum);}
      sum=over_lanes(sum);
      if(n0==0)us[i*CHANNELS+channel]=sum;
    }
    __syncthreads();
    write_tile(y,us,row,T,H,t0,first);
  }
  if(ok){UNROLL for(int k=0;k<OWN;k++)last[(row*H+d)*STATES+n0+k]=h[k];}
}

// Half of what each lane holds goes to the lane that differs in one bit; after three rounds a lane has one sum over eight channels.
IN float over_channels(float*v){
  const int lane=threadIdx.x&31;
  UNROLL for(int width=4,bit=4;width;width/=2,bit*=2){
    const bool upper=lane&bit;
    UNROLL for(int k=0;k<width;k++){
      const float got=__shfl_xor_sync(~0u,upper?v[k]:v[k+width],bit);
      v[k]=(upper?v[k+width]:v[k])+got;
    }
  }
  return v[0];
}

// parts: the gradients of b and c by block, (blocks, B, T, 2*STATES); drate: of A, (B, H, STATES).
extern "C" __global__ void __launch_bounds__(THREADS) backward(const elem*__restrict__ u, const elem*__restrict__ delta, const float*__restrict__ rate, const elem*__restrict__ b, const elem*__restrict__ c, const float*__restrict__ marks, const elem*__restrict__ dy, const float*__restrict__ dlast, elem*du, elem*ddelta, float*parts, float*drate, float*dstate, L B, L T, L H) {
  __shared__ float us[GROUP*CHANNELS],ds[GROUP*CHANNELS],gs[GROUP*CHANNELS],bs[GROUP*STATES],cs[GROUP*STATES],sums[GROUP*WARPS*32];
  const L blocks=(H+CHANNELS-1)/CHANNELS,row=blockIdx.x/blocks,block=blockIdx.x%blocks,first=block*CHANNELS,groups=(T+GROUP-1)/GROUP;
  const int channel=threadIdx.x/LANES,n0=threadIdx.x%LANES*OWN,lane=threadIdx.x&31,warp=threadIdx.x>>5;
  const L d=first+channel;
  const bool ok=d<H;
  float a[OWN],carry[OWN],total[OWN];
  UNROLL for(int k=0;k<OWN;k++){a[k]=ok?rate[d*STATES+n0+k]:0.f;carry[k]=ok?dlast[(row*H+d)*STATES+n0+k]:0.f;total[k]=0.f;}
  for(L g=groups-1;g>=0;g--){
    const L t0=g*GROUP;
    __syncthreads();
    read_tile(us,u,row,T,H,t0,first);read_tile(ds,delta,row,T,H,t0,first);read_tile(gs,dy,row,T,H,t0,first);
    read_states(bs,b,row,T,t0);read_states(cs,c,row,T,t0);
    float h[GROUP+1][OWN];
    UNROLL for(int k=0;k<OWN;k++)h[0][k]=ok?marks[((row*groups+g)*H+d)*STATES+n0+k]:0.f;
    __syncthreads();
    UNROLL for(int i=0;i<GROUP;i++){
      const float w=ds[i*CHANNELS+channel],x=w*us[i*CHANNELS+channel];
      UNROLL for(int k=0;k<OWN;k++)h[i+1][k]=fmaf(power(w*a[k]),h[i][k],x*bs[i*STATES+n0+k]);
    }
    UNROLL for(int i=GROUP-1;i>=0;i--){
      const float w=ds[i*CHANNELS+channel],x=us[i*CHANNELS+channel],dv=gs[i*CHANNELS+channel];
      float v[2*OWN],into=0.f,slow=0.f;
      UNROLL for(int k=0;k<OWN;k++){
        const float decay=power(w*a[k]),here=fmaf(dv,cs[i*STATES+n0+k],carry[k]),old=here*h[i][k]*decay;
        v[k]=here*w*x;v[OWN+k]=dv*h[i+1][k];
        into=fmaf(here,bs[i*STATES+n0+k],into);
        slow=fmaf(old,a[k],slow);
        total[k]=fmaf(old,w,total[k]);
        carry[k]=decay*here;
      }
      into=over_lanes(into);slow=over_lanes(slow)*0.6931471805599453f;
      if(n0==0){us[i*CHANNELS+channel]=w*into;ds[i*CHANNELS+channel]=fmaf(x,into,slow);}
      sums[(i*WARPS+warp)*32+lane]=over_channels(v);
    }
    __syncthreads();
    write_tile(du,us,row,T,H,t0,first);write_tile(ddelta,ds,row,T,H,t0,first);
    UNROLL for(int k=0;k<GROUP*32/THREADS;k++){
      const int at=k*THREADS+threadIdx.x,i=at/32,from=at%32;
      float sum=0.f;
      UNROLL for(int w=0;w<WARPS;w++)sum+=sums[(i*WARPS+w)*32+from];
      // Bits 2 to 4 of a lane say which of the eight numbers it has: gradient of c or of b, and the state.
      const int which=(from&4?4:0)+(from&8?2:0)+(from&16?1:0),n=from%LANES*OWN+which%OWN;
      if(t0+i<T)parts[((block*B+row)*T+t0+i)*(2*STATES)+(which/OWN)*STATES+n]=sum;
    }
  }
  if(ok){UNROLL for(int k=0;k<OWN;k++){dstate[(row*H+d)*STATES+n0+k]=carry[k];drate[(row*H+d)*STATES+n0+k]=total[k];}}
}
