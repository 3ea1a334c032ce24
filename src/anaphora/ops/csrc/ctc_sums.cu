// The sums over paths of one row, see `log_domain.py`. Thread i has the blank before symbol i of the target and that symbol; the last has
// a blank alone. alpha counts the emission of its own frame, beta does not:
//
//   alpha_t(blank i) = log(e^alpha'(blank i) + e^alpha'(i - 1)) + log p_t(blank),                       alpha' = alpha_(t - 1)
//   alpha_t(i)       = log(e^alpha'(i) + e^alpha'(blank i) + [y_i != y_(i-1)] e^alpha'(i - 1)) + log p_t(y_i)
//   beta_t(blank i)  = log(e^ahead(blank i) + e^ahead(i)),                                              ahead = beta_(t + 1) + log p_(t + 1)
//   beta_t(i)        = log(e^ahead(i) + e^ahead(blank i + 1) + [y_i != y_(i+1)] e^ahead(i + 1))
#define AHEAD 4

struct Emitted{double blank,label;};
__device__ inline Emitted emitted(const elem*z,const real*total,int t,int symbols,int silent,i64 y,bool label,int normalized){
  const elem*row=z+(i64)t*symbols;
  const double all=normalized?0.:(double)total[t];
  return {(double)wide(row[silent])-all,label?(double)wide(row[y])-all:nothing()};
}

// `there`: whether this thread has a state; `label`: whether it has a symbol too. Returns log p(y | x) in thread 0 of a walk back.
__device__ inline double walk(bool back,int T,int U,const elem*z,const real*total,int symbols,int silent,i64 y,bool skip,int normalized,
                              States*to,int width){
  __shared__ States handed[2][1024];
  const int i=threadIdx.x;
  const bool there=i<=U,label=i<U;
  const int first=back?T-1:0,way=back?-1:1;
  Emitted fetched[AHEAD];
#pragma unroll
  for(int k=0;k<AHEAD;k++)if(there&&k<T)fetched[k]=emitted(z,total,first+way*k,symbols,silent,y,label,normalized);
  double blank=nothing(),symbol=nothing();
  for(int base=0;base<T;base+=AHEAD){
#pragma unroll
    for(int k=0;k<AHEAD;k++){
      const int step=base+k,now=step&1,before=1-now;
      if(step>=T)break;  // of all threads
      const int t=first+way*step;
      const Emitted here=fetched[k];
      if(there&&step+AHEAD<T)fetched[k]=emitted(z,total,t+way*AHEAD,symbols,silent,y,label,normalized);
      if(there){
        double on_blank,on_symbol;
        if(!back){
          const double left=step&&i?handed[before][i-1].symbol:nothing();
          on_blank=step?log_add(blank,left):i==0?0:nothing();
          on_symbol=step?log_add(symbol,blank,skip?left:nothing()):i==0?0:nothing();
          blank=on_blank+here.blank;
          symbol=on_symbol+here.label;
          to[(i64)t*width+i]={blank,symbol};
          handed[now][i]={blank,symbol};
        }else{
          if(step){
            const States right=label?handed[before][i+1]:States{nothing(),nothing()};
            on_blank=log_add(blank,symbol);
            on_symbol=log_add(symbol,right.blank,skip?right.symbol:nothing());
          }else on_blank=i==U?0:nothing(),on_symbol=i==U-1?0:nothing();
          to[(i64)t*width+i]={on_blank,on_symbol};
          blank=on_blank+here.blank;
          symbol=label?on_symbol+here.label:nothing();
          handed[now][i]={blank,symbol};
        }
      }
      __syncthreads();
    }
  }
  return log_add(blank,symbol);
}

// Where the same symbol comes next in the target, or 0; with FIRST if it has not come before.
__device__ inline void link(const i64*labels,int U,int*next){
  for(int i=threadIdx.x;i<U;i+=blockDim.x){
    const i64 y=labels[i];
    int found=0,first=FIRST;
    for(int j=0;j<i;j++)if(labels[j]==y)first=0;
    for(int j=U-1;j>i;j--)if(labels[j]==y)found=j;
    next[i]=found|first;
  }
}

// Two blocks for each row, one for alpha, one for beta, which also writes the row's loss and status.
extern "C" __global__ void ctc_sums(const elem*z,const i64*labels,const i64*frames,const i64*sizes,const real*total,
                                    States*alpha,States*beta,double*log_of,int*next,real*losses,real*status,
                                    int rows,int T_most,int U_most,int symbols,int silent,int mean,int normalized){
  for(int task=blockIdx.x;task<2*rows;task+=gridDim.x){
    const int b=task>>1,i=threadIdx.x,width=U_most+1;
    const bool back=task&1;
    const Row r=row_of(frames,sizes,b,T_most,U_most);
    const i64*target=labels+(i64)b*U_most;
    bool wrong=r.wrong;
    for(int u=i;u<r.U;u+=blockDim.x)wrong|=!is_symbol(target[u],symbols,silent);
    const bool refused=__syncthreads_or(wrong);
    double found=!r.T&&!r.U?0:nothing();
    if(r.T&&!refused){
      const i64 y=i<r.U?target[i]:0;
      const int other=back?i+1:i-1;
      const bool skip=i<r.U&&other>=0&&other<r.U&&target[other]!=y;
      const i64 first=(i64)b*T_most*width;
      if(!back)link(target,r.U,next+(i64)b*U_most);
      found=walk(back,r.T,r.U,z+(i64)b*T_most*symbols,total+(i64)b*T_most,symbols,silent,y,skip,normalized,(back?beta:alpha)+first,width);
    }
    if(back&&i==0){
      const bool lost=found==nothing();
      log_of[b]=found;
      losses[b]=lost?(real)0:(real)(-found*weight(mean,rows,r.U));
      status[b]=refused?WRONG:lost?LOST:FINE;
    }
    __syncthreads();
  }
}
