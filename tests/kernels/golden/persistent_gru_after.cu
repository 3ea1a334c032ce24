#define KIND 1
#define H_ 16
#define HP 16
#define HS 16
#define NT 1
#define WARPS 4
#define NK 4
#define NR 1
#define SW 16
#define OW 16
#define OP 16
#define PART 1664
#define NV 1
#define SIDES 1
extern "C" __global__ void __launch_bounds__(NTH,1) all_steps(const elem*M0,const elem*X34,const elem*P0,const elem*P1,const elem*P2,elem*KEEP,float*KROW,elem*Y,elem*SHARED,float*ROWS,const elem*FIRST0,elem*LAST0,const int*LENGTHS,int*aborted,int*reported,int T,int B,int reverse,int groups,int turned){
extern __shared__ char memory[];float*part=(float*)memory;uint4*spill=(uint4*)(memory+2*PART*4);
const int block=blockIdx.x,blocks=gridDim.x;
const int tid=threadIdx.x,lane=tid&31,slice=block%NSL,j=tid%HS,jj=slice*HS+j,strip=jj/RW;
const bool col=jj<H_;const int jc=col?jj:0;Wait wait{false,aborted,reported};int turn=0;float*here=part;(void)here;(void)spill;(void)turn;(void)lane;(void)strip;
u32 m0[24];uint4*spill0=spill+0,*stage0=spill+0;(void)stage0;load_matrix<16,3,3,1,1,1>(M0,slice,m0,spill0);
__syncthreads();
const float p0_0=tof(P0[0*H_+jc]);const float p0_1=tof(P0[1*H_+jc]);const float p1_0=tof(P1[0*H_+jc]);const float p2_0=tof(P2[0*H_+jc]);

for(int group=block/NSL;group<groups;group+=blocks/NSL){
int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
int len[EPT],most;
UNROLL for(int i=0;i<EPT;i++){int b=group*BM+(tid+i*NTH)/HS;len[i]=LENGTHS?LENGTHS[b<B?b:B-1]:T;}
most=LENGTHS?LENGTHS[group*BM]:T;  // the longest of a group comes first
int prow[NT],plen[NT];
UNROLL for(int n=0;n<NT;n++){int b=group*BM+n*8+(lane>>2);b=b<B?b:B-1;prow[n]=LENGTHS?LENGTHS[B+b]:b;plen[n]=LENGTHS?LENGTHS[b]:T;}
(void)prow;(void)plen;
float v44_0[EPT];float v49_0[EPT];float v39_0[EPT];float v36_0[EPT];float v36_1[EPT];float v36_2[EPT];float v46_0[EPT];float v47_0[EPT];float v55_0[EPT];float v56_0[EPT];float v41_0[EPT];float v42_0[EPT];float v51_0[EPT];float v52_0[EPT];float v53_0[EPT];float v54_0[EPT];float v57_0[EPT];float v58_0[EPT];
float s0[EPT];UNROLL for(int i=0;i<EPT;i++)s0[i]=FIRST0?tof(FIRST0[(L)row[i]*H_+jc]):0.f;

bool live[EPT],up[EPT];int at[EPT],next[EPT],spot[EPT];
elem raw_x34_0[EPT];elem raw_x34_1[EPT];elem raw_x34_2[EPT];float x34_0[EPT];float x34_1[EPT];float x34_2[EPT];
auto fetch=[&](){EACH{const L r=next[i];(void)r;raw_x34_0[i]=X34[r*(3*H_)+0*H_+jc];raw_x34_1[i]=X34[r*(3*H_)+1*H_+jc];raw_x34_2[i]=X34[r*(3*H_)+2*H_+jc];}};
auto look=[&](int t){UNROLL for(int i=0;i<EPT;i++){up[i]=t<len[i];spot[i]=place(t,len[i],reverse);next[i]=spot[i]*B+row[i];}};
auto prepare=[&](){EACH{x34_0[i]=tof(raw_x34_0[i]);x34_1[i]=tof(raw_x34_1[i]);x34_2[i]=tof(raw_x34_2[i]);}};
auto open=[&](){EACH{put(SHARED+(L)next[i]*SW+jj+0*HP,(up[i]&&col?s0[i]:0.f),on[i]);}};
if(most){look(0);fetch();open();}
for(int t=0;t<most;t++){
UNROLL for(int i=0;i<EPT;i++){live[i]=up[i];at[i]=next[i];}
prepare();


look(t+1);
if(t+1<most){fetch();EACH{if(on[i]&&j*sizeof(elem)%32==0){touch(SHARED+(L)next[i]*SW+jj+0*HP);}}}
if(t+2<most)EACH{const int late=place(t+2,len[i],reverse);const L r=(L)late*B+row[i];if(on[i]){if(j*sizeof(elem)%32==0){touch(&X34[r*(3*H_)+0*H_+jc]);touch(&X34[r*(3*H_)+1*H_+jc]);touch(&X34[r*(3*H_)+2*H_+jc]);}}}
EACH{v44_0[i]=(x34_1[i]+p0_1);
v49_0[i]=(x34_2[i]+p1_0);
v39_0[i]=(x34_0[i]+p0_0);}
here=part+(turn&1)*PART;turn++;
{const elem*from[NT];UNROLL for(int n=0;n<NT;n++)from[n]=SHARED+((L)place(t,plen[n],reverse)*B+prow[n])*SW+0*HP+(tid>>5)/1*1*KBLK+(lane&3)*VEC;
product<16,3,1,1,1,2,1,false>(m0,spill0,stage0,from,here+0,wait);}

__syncthreads();
EACH{const int line=(tid+i*NTH)/HS;v36_0[i]=total<3,1>(here+0,line,0*HS+j);v36_1[i]=total<3,1>(here+0,line,1*HS+j);v36_2[i]=total<3,1>(here+0,line,2*HS+j);}

float y[EPT];Record<NK> record[EPT];
EACH{v46_0[i]=(v44_0[i]+v36_1[i]);
v47_0[i]=r_sigmoid(v46_0[i]);
v55_0[i]=(K(1.0)-v47_0[i]);
v56_0[i]=(v55_0[i]*s0[i]);
v41_0[i]=(v39_0[i]+v36_0[i]);
v42_0[i]=r_sigmoid(v41_0[i]);
v51_0[i]=(v36_2[i]+p2_0);
v52_0[i]=(v42_0[i]*v51_0[i]);
v53_0[i]=(v49_0[i]+v52_0[i]);
v54_0[i]=r_tanh(v53_0[i]);
v57_0[i]=(v47_0[i]*v54_0[i]);
v58_0[i]=(v56_0[i]+v57_0[i]);

record[i].v[0]=toe(v42_0[i]);
record[i].v[1]=toe(v47_0[i]);
record[i].v[2]=toe(v51_0[i]);
record[i].v[3]=toe(v54_0[i]);
const float n0=v58_0[i];
s0[i]=live[i]?n0:s0[i];
y[i]=live[i]?n0:0.f;}
if(t+1<most)open();
EACH{if(on[i]&&col)Y[(turned?(L)at[i]:(L)row[i]*T+place(t,len[i],reverse))*(SIDES*H_)+jj]=toe(y[i]);if(on[i]&&col)*(Record<NK>*)(KEEP+((L)at[i]*H_+jj)*NK)=record[i];}
}
for(int t=most;t<T;t++)EACH{L r=(L)t*B+row[i];(void)r;put(SHARED+r*SW+0*HP+jj,0.f,on[i]);if(on[i]&&col)Y[(turned?r:(L)row[i]*T+t)*(SIDES*H_)+jj]=toe(0.f);}
EACH{if(on[i]&&col){if(LAST0)LAST0[(L)row[i]*H_+jj]=toe(s0[i]);}}
}


if(is_set(aborted)){
for(int group=block/NSL;group<groups;group+=blocks/NSL){
int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
for(int t=0;t<T;t++)EACH{const L r=(L)t*B+row[i];(void)r;if(on[i])SHARED[r*SW+0*HP+jj]=toe(NOT_A_NUMBER);if(on[i]&&col)Y[(turned?r:(L)row[i]*T+t)*(SIDES*H_)+jj]=toe(NOT_A_NUMBER);}
EACH{if(on[i]&&col&&LAST0)LAST0[(L)row[i]*H_+jj]=toe(NOT_A_NUMBER);}
}

}
}

#define KIND 1
#define H_ 16
#define HP 16
#define HS 16
#define NT 1
#define WARPS 4
#define NK 4
#define NR 1
#define SW 64
#define OW 16
#define OP 16
#define PART 640
#define NV 1
#define SIDES 1
extern "C" __global__ void __launch_bounds__(NTH,1) all_steps(const elem*M0,const elem*KEEP,const float*KROW,const elem*OPERAND,const elem*DY,float*SUMS,elem*SHARED,float*ROWS,const elem*FIRST0,elem*LAST0,const int*LENGTHS,int*aborted,int*reported,int T,int B,int reverse,int groups,int turned){
extern __shared__ char memory[];float*part=(float*)memory;uint4*spill=(uint4*)(memory+2*PART*4);
const int block=blockIdx.x,blocks=gridDim.x;
const int tid=threadIdx.x,lane=tid&31,slice=block%NSL,j=tid%HS,jj=slice*HS+j,strip=jj/RW;
const bool col=jj<H_;const int jc=col?jj:0;Wait wait{false,aborted,reported};int turn=0;float*here=part;(void)here;(void)spill;(void)turn;(void)lane;(void)strip;
u32 m0[8];uint4*spill0=spill+0,*stage0=spill+0;(void)stage0;load_matrix<48,1,1,1,1,1>(M0,slice,m0,spill0);
__syncthreads();

float sum0=0.f;float sum1=0.f;float sum2=0.f;float sum3=0.f;
for(int group=block/NSL;group<groups;group+=blocks/NSL){
int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
int len[EPT],most;
UNROLL for(int i=0;i<EPT;i++){int b=group*BM+(tid+i*NTH)/HS;len[i]=LENGTHS?LENGTHS[b<B?b:B-1]:T;}
most=LENGTHS?LENGTHS[group*BM]:T;  // the longest of a group comes first
int prow[NT],plen[NT];
UNROLL for(int n=0;n<NT;n++){int b=group*BM+n*8+(lane>>2);b=b<B?b:B-1;prow[n]=LENGTHS?LENGTHS[B+b]:b;plen[n]=LENGTHS?LENGTHS[b]:T;}
(void)prow;(void)plen;
float v55_0[EPT];float v68_0[EPT];float v69_0[EPT];float v76_0[EPT];float v77_0[EPT];float v74_0[EPT];float v63_0[EPT];float v70_0[EPT];float v71_0[EPT];float v78_0[EPT];float v62_0[EPT];float v64_0[EPT];float v73_0[EPT];float v75_0[EPT];float v72_0[EPT];float v65_0[EPT];float v80_0[EPT];float v83_0[EPT];
float s0[EPT];UNROLL for(int i=0;i<EPT;i++)s0[i]=FIRST0?tof(FIRST0[(L)row[i]*H_+jc]):0.f;

bool live[EPT],up[EPT];int at[EPT],next[EPT],spot[EPT];
elem raw_o0_0[EPT];Record<NK> raw_keep[EPT];elem raw_dy[EPT];float dy[EPT],g0[EPT];float k0_0[EPT];float k0_1[EPT];float k0_2[EPT];float k0_3[EPT];float o0_0[EPT];
auto fetch=[&](){EACH{const L r=next[i];(void)r;raw_o0_0[i]=OPERAND[r*OW+0*OP+jc];raw_keep[i]=*(const Record<NK>*)(KEEP+(r*H_+jc)*NK);raw_dy[i]=DY?DY[(turned?r:(L)row[i]*T+spot[i])*(SIDES*H_)+jc]:toe(0.f);}};
auto look=[&](int t){UNROLL for(int i=0;i<EPT;i++){up[i]=t<len[i];spot[i]=place(t,len[i],reverse);next[i]=spot[i]*B+row[i];}};
auto prepare=[&](){EACH{k0_0[i]=tof(raw_keep[i].v[0]);k0_1[i]=tof(raw_keep[i].v[1]);k0_2[i]=tof(raw_keep[i].v[2]);k0_3[i]=tof(raw_keep[i].v[3]);o0_0[i]=tof(raw_o0_0[i]);dy[i]=tof(raw_dy[i]);v55_0[i]=(K(1.0)-k0_1[i]);v68_0[i]=(k0_3[i]*k0_3[i]);v69_0[i]=(K(1.0)-v68_0[i]);v76_0[i]=(K(1.0)-k0_0[i]);v77_0[i]=(k0_0[i]*v76_0[i]);v74_0[i]=(k0_1[i]*v55_0[i]);}};
auto open=[&](){EACH{v63_0[i]=(g0[i]*k0_1[i]);
v70_0[i]=(v63_0[i]*v69_0[i]);
v71_0[i]=(v70_0[i]*k0_2[i]);
v78_0[i]=(v71_0[i]*v77_0[i]);
v62_0[i]=(g0[i]*k0_3[i]);
v64_0[i]=(g0[i]*o0_0[i]);
v73_0[i]=(v62_0[i]-v64_0[i]);
v75_0[i]=(v73_0[i]*v74_0[i]);
v72_0[i]=(v70_0[i]*k0_0[i]);
put2(SHARED+(L)at[i]*SW+jj+0*HP,SHARED+(L)at[i]*SW+jj+1*HP,(live[i]&&col?v72_0[i]:0.f),(live[i]&&col?v78_0[i]:0.f),on[i]);
put(SHARED+(L)at[i]*SW+jj+2*HP,(live[i]&&col?v75_0[i]:0.f),on[i]);}};
if(most){look(most-1);fetch();prepare();}
for(int t=most-1;t>=0;t--){
UNROLL for(int i=0;i<EPT;i++){live[i]=up[i];at[i]=next[i];}

EACH{g0[i]=s0[i]+dy[i];}
open();
look(t-1);
if(t>0){fetch();EACH{if(on[i]&&j*sizeof(elem)%32==0){touch(SHARED+(L)next[i]*SW+jj+0*HP);touch(SHARED+(L)next[i]*SW+jj+1*HP);touch(SHARED+(L)next[i]*SW+jj+2*HP);}}}
if(t>1)EACH{const int late=place(t-2,len[i],reverse);const L r=(L)late*B+row[i];if(on[i]){if(j*sizeof(elem)%32==0){touch(&OPERAND[r*OW+0*OP+jc]);if(DY)touch(DY+(turned?r:(L)row[i]*T+late)*(SIDES*H_)+jc);}touch(KEEP+(r*H_+jc)*NK);}}
EACH{v65_0[i]=(g0[i]*v55_0[i]);
put(SHARED+(L)at[i]*SW+jj+3*HP,(live[i]&&col?v70_0[i]:0.f),on[i]);
sum0+=live[i]&&on[i]&&col?v72_0[i]:0.f;
sum1+=live[i]&&on[i]&&col?v70_0[i]:0.f;
sum2+=live[i]&&on[i]&&col?v78_0[i]:0.f;
sum3+=live[i]&&on[i]&&col?v75_0[i]:0.f;}
here=part+(turn&1)*PART;turn++;
{const elem*from[NT];UNROLL for(int n=0;n<NT;n++)from[n]=SHARED+((L)place(t,plen[n],reverse)*B+prow[n])*SW+0*HP+(tid>>5)/1*1*KBLK+(lane&3)*VEC;
product<48,1,1,1,1,2,1,false>(m0,spill0,stage0,from,here+0,wait);}
if(t>0)prepare();
__syncthreads();
EACH{const int line=(tid+i*NTH)/HS;v80_0[i]=total<1,1>(here+0,line,0*HS+j);}


EACH{v83_0[i]=(v65_0[i]+v80_0[i]);

const float n0=v83_0[i];
s0[i]=live[i]?n0:s0[i];}

EACH{}
}
for(int t=most;t<T;t++)EACH{L r=(L)t*B+row[i];(void)r;put(SHARED+r*SW+0*HP+jj,0.f,on[i]);put(SHARED+r*SW+1*HP+jj,0.f,on[i]);put(SHARED+r*SW+2*HP+jj,0.f,on[i]);put(SHARED+r*SW+3*HP+jj,0.f,on[i]);}
EACH{if(on[i]&&col){if(LAST0)LAST0[(L)row[i]*H_+jj]=toe(s0[i]);}}
}
const L rows=(blocks/NSL)*(NTH/HS),mine=(block/NSL)*(NTH/HS)+tid/HS;SUMS[(0*rows+mine)*HP+jj]=sum0;SUMS[(1*rows+mine)*HP+jj]=sum1;SUMS[(2*rows+mine)*HP+jj]=sum2;SUMS[(3*rows+mine)*HP+jj]=sum3;

if(is_set(aborted)){
for(int group=block/NSL;group<groups;group+=blocks/NSL){
int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
for(int t=0;t<T;t++)EACH{const L r=(L)t*B+row[i];(void)r;if(on[i])SHARED[r*SW+0*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+1*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+2*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+3*HP+jj]=toe(NOT_A_NUMBER);}
EACH{if(on[i]&&col&&LAST0)LAST0[(L)row[i]*H_+jj]=toe(NOT_A_NUMBER);}
}
const L rows=(blocks/NSL)*(NTH/HS),mine=(block/NSL)*(NTH/HS)+tid/HS;SUMS[(0*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(1*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(2*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(3*rows+mine)*HP+jj]=NOT_A_NUMBER;
}
}
