#define KIND 1
#define H_ 16
#define HP 16
#define HS 8
#define NT 1
#define WARPS 4
#define NK 12
#define NR 3
#define SW 16
#define OW 16
#define OP 16
#define PART 1152
#define NV 1
#define SIDES 1
#define FAST 1
extern "C" __global__ void __launch_bounds__(NTH,1) all_steps(const elem*M0,const float*A4,const float*A9,const elem*X3,const elem*P0,const elem*P1,const elem*P2,const elem*P3,const elem*P4,elem*KEEP,float*KROW,elem*Y,elem*SHARED,float*ROWS,const elem*FIRST0,const elem*FIRST1,elem*LAST0,elem*LAST1,const int*LENGTHS,int*aborted,int*reported,int T,int B,int reverse,int groups,int time_first){
extern __shared__ char memory[];float*part=(float*)memory;uint4*spill=(uint4*)(memory+2*PART*4);
const int block=blockIdx.x,blocks=gridDim.x;
const int tid=threadIdx.x,lane=tid&31,slice=block%NSL,j=tid%HS,jj=slice*HS+j,strip=jj/RW;
const bool col=jj<H_;const int jc=col?jj:0;Wait wait{false,aborted,reported};int turn=0;float*here=part;(void)here;(void)spill;(void)turn;(void)lane;(void)strip;
u32 m0[16];uint4*spill0=spill+0,*stage0=spill+0;(void)stage0;load_matrix<16,4,2,1,1,1>(M0,slice,m0,spill0);
__syncthreads();
char*near=memory+9216;int beat=0;
for(int k=tid;k<40;k+=NTH)set_up(near+8*k);
__syncthreads();
for(int k=tid;k<2*BM;k+=NTH)expect(near+0+8*k,NRS*16);for(int k=tid;k<2*BM;k+=NTH)expect(near+128+8*k,NRS*16);for(int k=tid;k<2*WARPS;k+=NTH)expect(near+256+8*k,share_of<16,1*KBLK>(k%WARPS));
meet();
const float p0_0=tof(P0[0*H_+jc]);const float p0_1=tof(P0[1*H_+jc]);const float p0_2=tof(P0[2*H_+jc]);const float p0_3=tof(P0[3*H_+jc]);const float p1_0=tof(P1[0*H_+jc]);const float p1_1=tof(P1[1*H_+jc]);const float p1_2=tof(P1[2*H_+jc]);const float p1_3=tof(P1[3*H_+jc]);const float p2_0=tof(P2[0*H_+jc]);const float p2_1=tof(P2[1*H_+jc]);const float p2_2=tof(P2[2*H_+jc]);const float p2_3=tof(P2[3*H_+jc]);const float p3_0=tof(P3[0*H_+jc]);const float p4_0=tof(P4[0*H_+jc]);

for(int group=block/NSL;group<groups;group+=blocks/NSL){
int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
int len[EPT],most;
UNROLL for(int i=0;i<EPT;i++){int b=group*BM+(tid+i*NTH)/HS;len[i]=LENGTHS?LENGTHS[b<B?b:B-1]:T;}
most=LENGTHS?LENGTHS[group*BM]:T;  // the longest of a group comes first
int prow[NT],plen[NT];
UNROLL for(int n=0;n<NT;n++){int b=group*BM+n*8+(lane>>2);b=b<B?b:B-1;prow[n]=LENGTHS?LENGTHS[B+b]:b;plen[n]=LENGTHS?LENGTHS[b]:T;}
(void)prow;(void)plen;
float v6_0[EPT];float v73_0[EPT];float v10_0[EPT];float v12_0[EPT];float v13_0[EPT];float v74_0[EPT];float v76_0[EPT];float v78_0[EPT];float v47_0[EPT];float v48_0[EPT];float v50_0[EPT];float v52_0[EPT];float v34_0[EPT];float v35_0[EPT];float v37_0[EPT];float v39_0[EPT];float v60_0[EPT];float v61_0[EPT];float v63_0[EPT];float v65_0[EPT];float v19_0[EPT];float v19_1[EPT];float v19_2[EPT];float v19_3[EPT];float z1_0[EPT];float z1_1[EPT];float v20_0[EPT];float v24_0[EPT];float v21_0[EPT];float v54_0[EPT];float v25_0[EPT];float v26_0[EPT];float v27_0[EPT];float v55_0[EPT];float v57_0[EPT];float v58_0[EPT];float v87_0[EPT];float v88_0[EPT];float v41_0[EPT];float v42_0[EPT];float v44_0[EPT];float v45_0[EPT];float v86_0[EPT];float v67_0[EPT];float v68_0[EPT];float v70_0[EPT];float v71_0[EPT];float v85_0[EPT];float v89_0[EPT];float v90_0[EPT];float z2_0[EPT];float z2_1[EPT];float v80_0[EPT];float v81_0[EPT];float v83_0[EPT];float v84_0[EPT];float v91_0[EPT];float v22_0[EPT];float v22_1[EPT];float v22_2[EPT];float v22_3[EPT];float v92_0[EPT];float v97_0[EPT];float v94_0[EPT];float v95_0[EPT];float v98_0[EPT];float v99_0[EPT];float v100_0[EPT];float v101_0[EPT];float v103_0[EPT];float v105_0[EPT];float v106_0[EPT];float v107_0[EPT];
float s0[EPT];UNROLL for(int i=0;i<EPT;i++)s0[i]=FIRST0?tof(FIRST0[(L)row[i]*H_+jc]):0.f;
float s1[EPT];UNROLL for(int i=0;i<EPT;i++)s1[i]=FIRST1?tof(FIRST1[(L)row[i]*H_+jc]):0.f;

bool live[EPT],up[EPT];int at[EPT],next[EPT],spot[EPT];
float raw_a4_0[EPT];float raw_a9_0[EPT];elem raw_x3_0[EPT];elem raw_x3_1[EPT];elem raw_x3_2[EPT];elem raw_x3_3[EPT];float a4_0[EPT];float a9_0[EPT];float x3_0[EPT];float x3_1[EPT];float x3_2[EPT];float x3_3[EPT];
auto fetch=[&](){EACH{const L r=next[i];(void)r;raw_a4_0[i]=A4[r];raw_a9_0[i]=A9[r];raw_x3_0[i]=X3[r*(4*H_)+0*H_+jc];raw_x3_1[i]=X3[r*(4*H_)+1*H_+jc];raw_x3_2[i]=X3[r*(4*H_)+2*H_+jc];raw_x3_3[i]=X3[r*(4*H_)+3*H_+jc];}};
auto look=[&](int t){UNROLL for(int i=0;i<EPT;i++){up[i]=t<len[i];spot[i]=place(t,len[i],reverse);next[i]=spot[i]*B+row[i];}};
auto prepare=[&](){EACH{a4_0[i]=raw_a4_0[i];a9_0[i]=raw_a9_0[i];x3_0[i]=tof(raw_x3_0[i]);x3_1[i]=tof(raw_x3_1[i]);x3_2[i]=tof(raw_x3_2[i]);x3_3[i]=tof(raw_x3_3[i]);}};
auto open=[&](){EACH{hand<32,1*KBLK>((elem*)(near+1344)+((beat+1)&1)*BM*32,near+256+((beat+1)&1)*WARPS*8,0*HP,up[i]&&col?s0[i]:0.f,slice,i,wait.over);
put(SHARED+(L)next[i]*SW+jj+0*HP,(up[i]&&col?s0[i]:0.f),on[i]);}};
if(most){look(0);fetch();open();}
for(int t=0;t<most;t++){beat++;
UNROLL for(int i=0;i<EPT;i++){live[i]=up[i];at[i]=next[i];}
prepare();


look(t+1);
if(t+1<most){fetch();}

EACH{v6_0[i]=(a4_0[i]*K(0.015625));
v73_0[i]=(x3_3[i]-v6_0[i]);
v10_0[i]=(a9_0[i]*K(0.015625));
v12_0[i]=(v10_0[i]+K(1e-05));
v13_0[i]=r_rsqrt(v12_0[i]);
v74_0[i]=(v73_0[i]*v13_0[i]);
v76_0[i]=(v74_0[i]*p0_3);
v78_0[i]=(v76_0[i]+p1_3);
v47_0[i]=(x3_1[i]-v6_0[i]);
v48_0[i]=(v47_0[i]*v13_0[i]);
v50_0[i]=(v48_0[i]*p0_1);
v52_0[i]=(v50_0[i]+p1_1);
v34_0[i]=(x3_0[i]-v6_0[i]);
v35_0[i]=(v34_0[i]*v13_0[i]);
v37_0[i]=(v35_0[i]*p0_0);
v39_0[i]=(v37_0[i]+p1_0);
v60_0[i]=(x3_2[i]-v6_0[i]);
v61_0[i]=(v60_0[i]*v13_0[i]);
v63_0[i]=(v61_0[i]*p0_2);
v65_0[i]=(v63_0[i]+p1_2);}
here=part+(turn&1)*PART;turn++;
{receive(near+256+(beat&1)*WARPS*8+(tid>>5)/1*8,beat,share_of<16,1*KBLK>((tid>>5)/1),tid%32==0,wait);const elem*from[NT];UNROLL for(int n=0;n<NT;n++)from[n]=(elem*)(near+1344)+(beat&1)*BM*32+(n*8+(lane>>2))*32+(tid>>5)/1*1*KBLK+(lane&3)*VEC;
product<16,2,1,1,1,2,1,true>(m0,spill0,stage0,from,here+0,wait);}
__syncthreads();
EACH{const int line=(tid+i*NTH)/HS;v19_0[i]=total<2,1>(here+0,line,0*HS+j);v19_1[i]=total<2,1>(here+0,line,1*HS+j);v19_2[i]=total<2,1>(here+0,line,2*HS+j);v19_3[i]=total<2,1>(here+0,line,3*HS+j);}

EACH{z1_0[i]=row_sum(col?v19_0[i]+v19_1[i]+v19_2[i]+v19_3[i]:0.f);
const float near1=first_of_row(v19_0[i]);
const float square1=row_sum(col?(v19_0[i]-near1)*(v19_0[i]-near1)+(v19_1[i]-near1)*(v19_1[i]-near1)+(v19_2[i]-near1)*(v19_2[i]-near1)+(v19_3[i]-near1)*(v19_3[i]-near1):0.f);
const float away1=z1_0[i]*(column_share(strip)*K(0.25))-near1;
z1_1[i]=r_max(square1-4*real_columns(strip)*away1*away1,0.f);
}
EACH{
{float*to=(float*)(near+320)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4+strip*4;char*bar=near+0+((beat&1)*BM+(tid+i*NTH)/HS)*8;UNROLL for(int u=0;u<NSL;u+=RW){const int s=u+j%RW;if(s<NSL&&!wait.over){hand4(to+0,bar,s,make_uint4(word(z1_0[i]),word(z1_1[i]),word(0.f),word(0.f)));}}}
}

{float got[EPT][TURNS][4];
EACH{receive(near+0+((beat&1)*BM+(tid+i*NTH)/HS)*8,beat,NRS*16,j==0,wait);
const float*all=(float*)(near+320)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4;UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){got[i][u][0]=wait.over?NOT_A_NUMBER:all[s*4+0];got[i][u][1]=wait.over?NOT_A_NUMBER:all[s*4+1];}}
__syncwarp();}
EACH{const float near1=first_of_row(got[i][0][0]*(column_share(0)*K(0.25)));float apart1=0.f,both1=0.f;
UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){const float n=4*real_columns(s),d=got[i][u][0]*(column_share(s)*K(0.25))-near1;apart1+=n*d;both1+=got[i][u][1]+n*d*d;}}
apart1=strips_sum(apart1);both1=strips_sum(both1);
const float z0=near1*(4.f*H_)+apart1;
const float z1=r_max(both1-apart1*apart1*(1.f/(4*H_)),0.f);
v20_0[i]=z0;
v24_0[i]=z1;}}

EACH{v21_0[i]=(v20_0[i]*K(0.015625));
v54_0[i]=(v19_1[i]-v21_0[i]);
v25_0[i]=(v24_0[i]*K(0.015625));
v26_0[i]=(v25_0[i]+K(1e-05));
v27_0[i]=r_rsqrt(v26_0[i]);
v55_0[i]=(v54_0[i]*v27_0[i]);
v57_0[i]=(v55_0[i]*p2_1);
v58_0[i]=(v52_0[i]+v57_0[i]);
v87_0[i]=r_sigmoid(v58_0[i]);
v88_0[i]=(v87_0[i]*s1[i]);
v41_0[i]=(v19_0[i]-v21_0[i]);
v42_0[i]=(v41_0[i]*v27_0[i]);
v44_0[i]=(v42_0[i]*p2_0);
v45_0[i]=(v39_0[i]+v44_0[i]);
v86_0[i]=r_sigmoid(v45_0[i]);
v67_0[i]=(v19_2[i]-v21_0[i]);
v68_0[i]=(v67_0[i]*v27_0[i]);
v70_0[i]=(v68_0[i]*p2_2);
v71_0[i]=(v65_0[i]+v70_0[i]);
v85_0[i]=r_tanh(v71_0[i]);
v89_0[i]=(v86_0[i]*v85_0[i]);
v90_0[i]=(v88_0[i]+v89_0[i]);
z2_0[i]=row_sum(col?v90_0[i]:0.f);
const float near1=first_of_row(v90_0[i]);
const float square1=row_sum(col?(v90_0[i]-near1)*(v90_0[i]-near1):0.f);
const float away1=z2_0[i]*(column_share(strip)*K(1.0))-near1;
z2_1[i]=r_max(square1-1*real_columns(strip)*away1*away1,0.f);
}
EACH{
{float*to=(float*)(near+832)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4+strip*4;char*bar=near+128+((beat&1)*BM+(tid+i*NTH)/HS)*8;UNROLL for(int u=0;u<NSL;u+=RW){const int s=u+j%RW;if(s<NSL&&!wait.over){hand4(to+0,bar,s,make_uint4(word(z2_0[i]),word(z2_1[i]),word(0.f),word(0.f)));}}}
v80_0[i]=(v19_3[i]-v21_0[i]);
v81_0[i]=(v80_0[i]*v27_0[i]);
v83_0[i]=(v81_0[i]*p2_3);
v84_0[i]=(v78_0[i]+v83_0[i]);
v91_0[i]=r_sigmoid(v84_0[i]);
v22_0[i]=(v19_0[i]-v21_0[i]);
v22_1[i]=(v19_1[i]-v21_0[i]);
v22_2[i]=(v19_2[i]-v21_0[i]);
v22_3[i]=(v19_3[i]-v21_0[i]);}


{float got[EPT][TURNS][4];
EACH{receive(near+128+((beat&1)*BM+(tid+i*NTH)/HS)*8,beat,NRS*16,j==0,wait);
const float*all=(float*)(near+832)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4;UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){got[i][u][0]=wait.over?NOT_A_NUMBER:all[s*4+0];got[i][u][1]=wait.over?NOT_A_NUMBER:all[s*4+1];}}
__syncwarp();}
EACH{const float near1=first_of_row(got[i][0][0]*(column_share(0)*K(1.0)));float apart1=0.f,both1=0.f;
UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){const float n=1*real_columns(s),d=got[i][u][0]*(column_share(s)*K(1.0))-near1;apart1+=n*d;both1+=got[i][u][1]+n*d*d;}}
apart1=strips_sum(apart1);both1=strips_sum(both1);
const float z0=near1*(1.f*H_)+apart1;
const float z1=r_max(both1-apart1*apart1*(1.f/(1*H_)),0.f);
v92_0[i]=z0;
v97_0[i]=z1;}}

float y[EPT];Record<NK> record[EPT];float rows[EPT][NR];
EACH{v94_0[i]=(v92_0[i]*K(0.0625));
v95_0[i]=(v90_0[i]-v94_0[i]);
v98_0[i]=(v97_0[i]*K(0.0625));
v99_0[i]=(v98_0[i]+K(1e-05));
v100_0[i]=r_rsqrt(v99_0[i]);
v101_0[i]=(v95_0[i]*v100_0[i]);
v103_0[i]=(v101_0[i]*p3_0);
v105_0[i]=(v103_0[i]+p4_0);
v106_0[i]=r_tanh(v105_0[i]);
v107_0[i]=(v91_0[i]*v106_0[i]);

record[i].v[0]=toe(v22_0[i]);
record[i].v[1]=toe(v22_1[i]);
record[i].v[2]=toe(v22_2[i]);
record[i].v[3]=toe(v22_3[i]);
record[i].v[4]=toe(s1[i]);
record[i].v[5]=toe(v85_0[i]);
record[i].v[6]=toe(v86_0[i]);
record[i].v[7]=toe(v87_0[i]);
record[i].v[8]=toe(v91_0[i]);
record[i].v[9]=toe(v106_0[i]);
record[i].v[10]=toe(0.f);
record[i].v[11]=toe(0.f);
rows[i][0]=v27_0[i];
rows[i][1]=v92_0[i];
rows[i][2]=v100_0[i];
const float n0=v107_0[i];
const float n1=v90_0[i];
s0[i]=live[i]?n0:s0[i];
s1[i]=live[i]?n1:s1[i];
y[i]=live[i]?n0:0.f;}
if(t+1<most)open();
EACH{if(on[i]&&col)Y[(time_first?(L)at[i]:(L)row[i]*T+place(t,len[i],reverse))*(SIDES*H_)+jj]=toe(y[i]);if(on[i]&&col)*(Record<NK>*)(KEEP+((L)at[i]*H_+jj)*NK)=record[i];if(on[i]&&jj==0){KROW[(L)at[i]*NR+0]=rows[i][0];KROW[(L)at[i]*NR+1]=rows[i][1];KROW[(L)at[i]*NR+2]=rows[i][2];}}
}
for(int t=most;t<T;t++)EACH{L r=(L)t*B+row[i];(void)r;put(SHARED+r*SW+0*HP+jj,0.f,on[i]);if(on[i]&&col)Y[(time_first?r:(L)row[i]*T+t)*(SIDES*H_)+jj]=toe(0.f);}
EACH{if(on[i]&&col){if(LAST0)LAST0[(L)row[i]*H_+jj]=toe(s0[i]);if(LAST1)LAST1[(L)row[i]*H_+jj]=toe(s1[i]);}}
}

meet();
if(is_set(aborted)){
for(int group=block/NSL;group<groups;group+=blocks/NSL){
int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
for(int t=0;t<T;t++)EACH{const L r=(L)t*B+row[i];(void)r;if(on[i])SHARED[r*SW+0*HP+jj]=toe(NOT_A_NUMBER);if(on[i]&&col)Y[(time_first?r:(L)row[i]*T+t)*(SIDES*H_)+jj]=toe(NOT_A_NUMBER);}
EACH{if(on[i]&&col&&LAST0)LAST0[(L)row[i]*H_+jj]=toe(NOT_A_NUMBER);if(on[i]&&col&&LAST1)LAST1[(L)row[i]*H_+jj]=toe(NOT_A_NUMBER);}
}

}
}

#define KIND 1
#define H_ 16
#define HP 16
#define HS 8
#define NT 1
#define WARPS 4
#define NK 12
#define NR 3
#define SW 128
#define OW 16
#define OP 16
#define PART 640
#define NV 1
#define SIDES 1
#define FAST 1
extern "C" __global__ void __launch_bounds__(NTH,1) all_steps(const elem*M0,const float*A4,const float*A9,const elem*X3,const elem*P0,const elem*P2,const elem*P3,const elem*KEEP,const float*KROW,const elem*OPERAND,const elem*DY,float*SUMS,elem*SHARED,float*ROWS,const elem*FIRST0,const elem*FIRST1,elem*LAST0,elem*LAST1,const int*LENGTHS,int*aborted,int*reported,int T,int B,int reverse,int groups,int time_first){
extern __shared__ char memory[];float*part=(float*)memory;uint4*spill=(uint4*)(memory+2*PART*4);
const int block=blockIdx.x,blocks=gridDim.x;
const int tid=threadIdx.x,lane=tid&31,slice=block%NSL,j=tid%HS,jj=slice*HS+j,strip=jj/RW;
const bool col=jj<H_;const int jc=col?jj:0;Wait wait{false,aborted,reported};int turn=0;float*here=part;(void)here;(void)spill;(void)turn;(void)lane;(void)strip;
u32 m0[8];uint4*spill0=spill+0,*stage0=spill+0;(void)stage0;load_matrix<64,1,1,1,1,1>(M0,slice,m0,spill0);
__syncthreads();
char*near=memory+5120;int beat=0;
for(int k=tid;k<40;k+=NTH)set_up(near+8*k);
__syncthreads();
for(int k=tid;k<2*BM;k+=NTH)expect(near+0+8*k,NRS*16);for(int k=tid;k<2*BM;k+=NTH)expect(near+128+8*k,NRS*16);for(int k=tid;k<2*WARPS;k+=NTH)expect(near+256+8*k,share_of<64,1*KBLK>(k%WARPS));
meet();
const float p0_0=tof(P0[0*H_+jc]);const float p0_1=tof(P0[1*H_+jc]);const float p0_2=tof(P0[2*H_+jc]);const float p0_3=tof(P0[3*H_+jc]);const float p2_0=tof(P2[0*H_+jc]);const float p2_1=tof(P2[1*H_+jc]);const float p2_2=tof(P2[2*H_+jc]);const float p2_3=tof(P2[3*H_+jc]);const float p3_0=tof(P3[0*H_+jc]);
float sum0=0.f;float sum1=0.f;float sum2=0.f;float sum3=0.f;float sum4=0.f;float sum5=0.f;float sum6=0.f;float sum7=0.f;float sum8=0.f;float sum9=0.f;float sum10=0.f;float sum11=0.f;float sum12=0.f;float sum13=0.f;
for(int group=block/NSL;group<groups;group+=blocks/NSL){
int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
int len[EPT],most;
UNROLL for(int i=0;i<EPT;i++){int b=group*BM+(tid+i*NTH)/HS;len[i]=LENGTHS?LENGTHS[b<B?b:B-1]:T;}
most=LENGTHS?LENGTHS[group*BM]:T;  // the longest of a group comes first
int prow[NT],plen[NT];
UNROLL for(int n=0;n<NT;n++){int b=group*BM+n*8+(lane>>2);b=b<B?b:B-1;prow[n]=LENGTHS?LENGTHS[B+b]:b;plen[n]=LENGTHS?LENGTHS[b]:T;}
(void)prow;(void)plen;
float v113_0[EPT];float v114_0[EPT];float v115_0[EPT];float v116_0[EPT];float v117_0[EPT];float v88_0[EPT];float v89_0[EPT];float v90_0[EPT];float v94_0[EPT];float v95_0[EPT];float v120_0[EPT];float z0_0[EPT];float z0_1[EPT];float v119_0[EPT];float v124_0[EPT];float v125_0[EPT];float v150_0[EPT];float v151_0[EPT];float v112_0[EPT];float v138_0[EPT];float v139_0[EPT];float v140_0[EPT];float v156_0[EPT];float v159_0[EPT];float v153_0[EPT];float v154_0[EPT];float v147_0[EPT];float v148_0[EPT];float v217_0[EPT];float v218_0[EPT];float v340_0[EPT];float v158_0[EPT];float v10_0[EPT];float v12_0[EPT];float v13_0[EPT];float v163_0[EPT];float v6_0[EPT];float v73_0[EPT];float v166_0[EPT];float v60_0[EPT];float v47_0[EPT];float v34_0[EPT];float v259_0[EPT];float v260_0[EPT];float v427_0[EPT];float v165_0[EPT];float v101_0[EPT];float v118_0[EPT];float v42_0[EPT];float v55_0[EPT];float v68_0[EPT];float v81_0[EPT];float v157_0[EPT];float v35_0[EPT];float v48_0[EPT];float v61_0[EPT];float v74_0[EPT];float v164_0[EPT];float v121_0[EPT];float v295_0[EPT];float v123_0[EPT];float v126_0[EPT];float v127_0[EPT];float v130_0[EPT];float v131_0[EPT];float v132_0[EPT];float v141_0[EPT];float v296_0[EPT];float v297_0[EPT];float v298_0[EPT];float v299_0[EPT];float v304_0[EPT];float v305_0[EPT];float v306_0[EPT];float v307_0[EPT];float v312_0[EPT];float v313_0[EPT];float v314_0[EPT];float v315_0[EPT];float v300_0[EPT];float v301_0[EPT];float v302_0[EPT];float v320_0[EPT];float v341_0[EPT];float v351_0[EPT];float v360_0[EPT];float v395_0[EPT];float v396_0[EPT];float v401_0[EPT];float v402_0[EPT];float v393_0[EPT];float v407_0[EPT];float v428_0[EPT];float v438_0[EPT];float v447_0[EPT];float z1_0[EPT];float z1_1[EPT];float z1_2[EPT];float z1_3[EPT];float v303_0[EPT];float v345_0[EPT];float v334_0[EPT];float v383_0[EPT];float v394_0[EPT];float v432_0[EPT];float v421_0[EPT];float v384_0[EPT];float v385_0[EPT];float v386_0[EPT];float v389_0[EPT];float v390_0[EPT];float v391_0[EPT];float v324_0[EPT];float v362_0[EPT];float v411_0[EPT];float v449_0[EPT];float v325_0[EPT];float v326_0[EPT];float v327_0[EPT];float v328_0[EPT];float v329_0[EPT];float v330_0[EPT];float v363_0[EPT];float v367_0[EPT];float v368_0[EPT];float v369_0[EPT];float v370_0[EPT];float v371_0[EPT];float v372_0[EPT];float v373_0[EPT];float v374_0[EPT];float v375_0[EPT];float v376_0[EPT];float v377_0[EPT];float v378_0[EPT];float v379_0[EPT];float v380_0[EPT];float v412_0[EPT];float v413_0[EPT];float v414_0[EPT];float v415_0[EPT];float v416_0[EPT];float v417_0[EPT];float v450_0[EPT];float v454_0[EPT];float v455_0[EPT];float v456_0[EPT];float v457_0[EPT];float v458_0[EPT];float v459_0[EPT];float v460_0[EPT];float v461_0[EPT];float v462_0[EPT];float v463_0[EPT];float v464_0[EPT];float v465_0[EPT];float v466_0[EPT];float v467_0[EPT];float v382_0[EPT];
float s0[EPT];UNROLL for(int i=0;i<EPT;i++)s0[i]=FIRST0?tof(FIRST0[(L)row[i]*H_+jc]):0.f;
float s1[EPT];UNROLL for(int i=0;i<EPT;i++)s1[i]=FIRST1?tof(FIRST1[(L)row[i]*H_+jc]):0.f;

bool live[EPT],up[EPT];int at[EPT],next[EPT],spot[EPT];
float raw_a4_0[EPT];float raw_a9_0[EPT];elem raw_x3_0[EPT];elem raw_x3_1[EPT];elem raw_x3_2[EPT];elem raw_x3_3[EPT];float raw_w0_0[EPT];float raw_w0_1[EPT];float raw_w0_2[EPT];Record<NK> raw_keep[EPT];elem raw_dy[EPT];float dy[EPT],g0[EPT];float a4_0[EPT];float a9_0[EPT];float k0_0[EPT];float k0_1[EPT];float k0_2[EPT];float k0_3[EPT];float k0_4[EPT];float k0_5[EPT];float k0_6[EPT];float k0_7[EPT];float k0_8[EPT];float k0_9[EPT];float x3_0[EPT];float x3_1[EPT];float x3_2[EPT];float x3_3[EPT];float w0_0[EPT];float w0_1[EPT];float w0_2[EPT];
auto fetch=[&](){EACH{const L r=next[i];(void)r;raw_a4_0[i]=A4[r];raw_a9_0[i]=A9[r];raw_x3_0[i]=X3[r*(4*H_)+0*H_+jc];raw_x3_1[i]=X3[r*(4*H_)+1*H_+jc];raw_x3_2[i]=X3[r*(4*H_)+2*H_+jc];raw_x3_3[i]=X3[r*(4*H_)+3*H_+jc];raw_w0_0[i]=KROW[r*NR+0];raw_w0_1[i]=KROW[r*NR+1];raw_w0_2[i]=KROW[r*NR+2];raw_keep[i]=*(const Record<NK>*)(KEEP+(r*H_+jc)*NK);raw_dy[i]=DY?DY[(time_first?r:(L)row[i]*T+spot[i])*(SIDES*H_)+jc]:toe(0.f);}};
auto look=[&](int t){UNROLL for(int i=0;i<EPT;i++){up[i]=t<len[i];spot[i]=place(t,len[i],reverse);next[i]=spot[i]*B+row[i];}};
auto prepare=[&](){EACH{a4_0[i]=raw_a4_0[i];a9_0[i]=raw_a9_0[i];k0_0[i]=tof(raw_keep[i].v[0]);k0_1[i]=tof(raw_keep[i].v[1]);k0_2[i]=tof(raw_keep[i].v[2]);k0_3[i]=tof(raw_keep[i].v[3]);k0_4[i]=tof(raw_keep[i].v[4]);k0_5[i]=tof(raw_keep[i].v[5]);k0_6[i]=tof(raw_keep[i].v[6]);k0_7[i]=tof(raw_keep[i].v[7]);k0_8[i]=tof(raw_keep[i].v[8]);k0_9[i]=tof(raw_keep[i].v[9]);x3_0[i]=tof(raw_x3_0[i]);x3_1[i]=tof(raw_x3_1[i]);x3_2[i]=tof(raw_x3_2[i]);x3_3[i]=tof(raw_x3_3[i]);w0_0[i]=raw_w0_0[i];w0_1[i]=raw_w0_1[i];w0_2[i]=raw_w0_2[i];dy[i]=tof(raw_dy[i]);}};
auto open=[&](){EACH{v113_0[i]=(g0[i]*k0_8[i]);
v114_0[i]=(k0_9[i]*k0_9[i]);
v115_0[i]=(K(1.0)-v114_0[i]);
v116_0[i]=(v113_0[i]*v115_0[i]);
v117_0[i]=(v116_0[i]*p3_0);
v88_0[i]=(k0_7[i]*k0_4[i]);
v89_0[i]=(k0_6[i]*k0_5[i]);
v90_0[i]=(v88_0[i]+v89_0[i]);
v94_0[i]=(w0_1[i]*K(0.0625));
v95_0[i]=(v90_0[i]-v94_0[i]);
v120_0[i]=(v117_0[i]*v95_0[i]);
z0_0[i]=row_sum(col?v120_0[i]:0.f);
z0_1[i]=row_sum(col?v117_0[i]:0.f);
}
EACH{
{float*to=(float*)(near+320)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4+strip*4;char*bar=near+0+((beat&1)*BM+(tid+i*NTH)/HS)*8;UNROLL for(int u=0;u<NSL;u+=RW){const int s=u+j%RW;if(s<NSL&&!wait.over){hand4(to+0,bar,s,make_uint4(word(z0_0[i]),word(z0_1[i]),word(0.f),word(0.f)));}}}}};
if(most){look(most-1);fetch();}
for(int t=most-1;t>=0;t--){beat++;
UNROLL for(int i=0;i<EPT;i++){live[i]=up[i];at[i]=next[i];}
prepare();
EACH{g0[i]=s0[i]+dy[i];}
open();
look(t-1);
if(t>0){fetch();}
if(t>1)EACH{const int late=place(t-2,len[i],reverse);const L r=(L)late*B+row[i];if(on[i]){if(j*sizeof(elem)%32==0){touch(&X3[r*(4*H_)+0*H_+jc]);touch(&X3[r*(4*H_)+1*H_+jc]);touch(&X3[r*(4*H_)+2*H_+jc]);touch(&X3[r*(4*H_)+3*H_+jc]);if(DY)touch(DY+(time_first?r:(L)row[i]*T+late)*(SIDES*H_)+jc);}if(j==0){touch(&A4[r]);touch(&A9[r]);touch(&KROW[r*NR+0]);}touch(KEEP+(r*H_+jc)*NK);}}
EACH{v119_0[i]=(v117_0[i]*w0_2[i]);
v124_0[i]=(w0_2[i]*w0_2[i]);
v125_0[i]=(w0_2[i]*v124_0[i]);
v150_0[i]=(K(1.0)-k0_6[i]);
v151_0[i]=(k0_6[i]*v150_0[i]);
v112_0[i]=(g0[i]*k0_9[i]);
v138_0[i]=(K(1.0)-k0_8[i]);
v139_0[i]=(k0_8[i]*v138_0[i]);
v140_0[i]=(v112_0[i]*v139_0[i]);
v156_0[i]=(v140_0[i]*p2_3);
v159_0[i]=(v156_0[i]*k0_3[i]);
v153_0[i]=(k0_5[i]*k0_5[i]);
v154_0[i]=(K(1.0)-v153_0[i]);
v147_0[i]=(K(1.0)-k0_7[i]);
v148_0[i]=(k0_7[i]*v147_0[i]);
v217_0[i]=(w0_0[i]*w0_0[i]);
v218_0[i]=(w0_0[i]*v217_0[i]);
v340_0[i]=(-v156_0[i]);
v158_0[i]=(v156_0[i]*w0_0[i]);
v10_0[i]=(a9_0[i]*K(0.015625));
v12_0[i]=(v10_0[i]+K(1e-05));
v13_0[i]=r_rsqrt(v12_0[i]);
v163_0[i]=(v140_0[i]*p0_3);
v6_0[i]=(a4_0[i]*K(0.015625));
v73_0[i]=(x3_3[i]-v6_0[i]);
v166_0[i]=(v163_0[i]*v73_0[i]);
v60_0[i]=(x3_2[i]-v6_0[i]);
v47_0[i]=(x3_1[i]-v6_0[i]);
v34_0[i]=(x3_0[i]-v6_0[i]);
v259_0[i]=(v13_0[i]*v13_0[i]);
v260_0[i]=(v13_0[i]*v259_0[i]);
v427_0[i]=(-v163_0[i]);
v165_0[i]=(v163_0[i]*v13_0[i]);
v101_0[i]=(v95_0[i]*w0_2[i]);
v118_0[i]=(v116_0[i]*v101_0[i]);
v42_0[i]=(k0_0[i]*w0_0[i]);
v55_0[i]=(k0_1[i]*w0_0[i]);
v68_0[i]=(k0_2[i]*w0_0[i]);
v81_0[i]=(k0_3[i]*w0_0[i]);
v157_0[i]=(v140_0[i]*v81_0[i]);
v35_0[i]=(v34_0[i]*v13_0[i]);
v48_0[i]=(v47_0[i]*v13_0[i]);
v61_0[i]=(v60_0[i]*v13_0[i]);
v74_0[i]=(v73_0[i]*v13_0[i]);
v164_0[i]=(v140_0[i]*v74_0[i]);
sum0+=live[i]&&on[i]&&col?v116_0[i]:0.f;
sum1+=live[i]&&on[i]&&col?v118_0[i]:0.f;
sum5+=live[i]&&on[i]&&col?v157_0[i]:0.f;
sum9+=live[i]&&on[i]&&col?v140_0[i]:0.f;
sum13+=live[i]&&on[i]&&col?v164_0[i]:0.f;}

{float got[EPT][TURNS][4];
EACH{receive(near+0+((beat&1)*BM+(tid+i*NTH)/HS)*8,beat,NRS*16,j==0,wait);
const float*all=(float*)(near+320)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4;UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){got[i][u][0]=wait.over?NOT_A_NUMBER:all[s*4+0];got[i][u][1]=wait.over?NOT_A_NUMBER:all[s*4+1];}}
__syncwarp();}
EACH{float z0=0.f;
UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){z0+=got[i][u][0];}
z0=strips_sum(z0);
float z1=0.f;
UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){z1+=got[i][u][1];}
z1=strips_sum(z1);
v121_0[i]=z0;
v295_0[i]=z1;}}

EACH{v123_0[i]=(v121_0[i]*K(-0.5));
v126_0[i]=(v123_0[i]*v125_0[i]);
v127_0[i]=(v126_0[i]*K(0.0625));
v130_0[i]=(v127_0[i]*v95_0[i]);
v131_0[i]=(v119_0[i]+v130_0[i]);
v132_0[i]=(v131_0[i]+v130_0[i]);
v141_0[i]=(s1[i]+v132_0[i]);
v296_0[i]=(w0_2[i]*v295_0[i]);
v297_0[i]=(-v296_0[i]);
v298_0[i]=(v297_0[i]*K(0.0625));
v299_0[i]=(v141_0[i]+v298_0[i]);
v304_0[i]=(v299_0[i]*k0_6[i]);
v305_0[i]=(v304_0[i]*v154_0[i]);
v306_0[i]=(v305_0[i]*p2_2);
v307_0[i]=(v306_0[i]*k0_2[i]);
v312_0[i]=(v299_0[i]*k0_4[i]);
v313_0[i]=(v312_0[i]*v148_0[i]);
v314_0[i]=(v313_0[i]*p2_1);
v315_0[i]=(v314_0[i]*k0_1[i]);
v300_0[i]=(v299_0[i]*k0_5[i]);
v301_0[i]=(v300_0[i]*v151_0[i]);
v302_0[i]=(v301_0[i]*p2_0);
v320_0[i]=(v302_0[i]*k0_0[i]);
v341_0[i]=(-v306_0[i]);
v351_0[i]=(-v314_0[i]);
v360_0[i]=(-v302_0[i]);
v395_0[i]=(v305_0[i]*p0_2);
v396_0[i]=(v395_0[i]*v60_0[i]);
v401_0[i]=(v313_0[i]*p0_1);
v402_0[i]=(v401_0[i]*v47_0[i]);
v393_0[i]=(v301_0[i]*p0_0);
v407_0[i]=(v393_0[i]*v34_0[i]);
v428_0[i]=(-v395_0[i]);
v438_0[i]=(-v401_0[i]);
v447_0[i]=(-v393_0[i]);
z1_0[i]=row_sum(col?v159_0[i]+v307_0[i]+v315_0[i]+v320_0[i]:0.f);
z1_1[i]=row_sum(col?v340_0[i]+v341_0[i]+v351_0[i]+v360_0[i]:0.f);
z1_2[i]=row_sum(col?v166_0[i]+v396_0[i]+v402_0[i]+v407_0[i]:0.f);
z1_3[i]=row_sum(col?v427_0[i]+v428_0[i]+v438_0[i]+v447_0[i]:0.f);
}
EACH{
{float*to=(float*)(near+832)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4+strip*4;char*bar=near+128+((beat&1)*BM+(tid+i*NTH)/HS)*8;UNROLL for(int u=0;u<NSL;u+=RW){const int s=u+j%RW;if(s<NSL&&!wait.over){hand4(to+0,bar,s,make_uint4(word(z1_0[i]),word(z1_1[i]),word(z1_2[i]),word(z1_3[i])));}}}
v303_0[i]=(v302_0[i]*w0_0[i]);
v345_0[i]=(v314_0[i]*w0_0[i]);
v334_0[i]=(v306_0[i]*w0_0[i]);
v383_0[i]=(v299_0[i]*k0_7[i]);
v394_0[i]=(v393_0[i]*v13_0[i]);
v432_0[i]=(v401_0[i]*v13_0[i]);
v421_0[i]=(v395_0[i]*v13_0[i]);
v384_0[i]=(v301_0[i]*v42_0[i]);
v385_0[i]=(v313_0[i]*v55_0[i]);
v386_0[i]=(v305_0[i]*v68_0[i]);
v389_0[i]=(v301_0[i]*v35_0[i]);
v390_0[i]=(v313_0[i]*v48_0[i]);
v391_0[i]=(v305_0[i]*v61_0[i]);
sum2+=live[i]&&on[i]&&col?v384_0[i]:0.f;
sum3+=live[i]&&on[i]&&col?v385_0[i]:0.f;
sum4+=live[i]&&on[i]&&col?v386_0[i]:0.f;
sum6+=live[i]&&on[i]&&col?v301_0[i]:0.f;
sum7+=live[i]&&on[i]&&col?v313_0[i]:0.f;
sum8+=live[i]&&on[i]&&col?v305_0[i]:0.f;
sum10+=live[i]&&on[i]&&col?v389_0[i]:0.f;
sum11+=live[i]&&on[i]&&col?v390_0[i]:0.f;
sum12+=live[i]&&on[i]&&col?v391_0[i]:0.f;}

{float got[EPT][TURNS][4];
EACH{receive(near+128+((beat&1)*BM+(tid+i*NTH)/HS)*8,beat,NRS*16,j==0,wait);
const float*all=(float*)(near+832)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4;UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){got[i][u][0]=wait.over?NOT_A_NUMBER:all[s*4+0];got[i][u][1]=wait.over?NOT_A_NUMBER:all[s*4+1];got[i][u][2]=wait.over?NOT_A_NUMBER:all[s*4+2];got[i][u][3]=wait.over?NOT_A_NUMBER:all[s*4+3];}}
__syncwarp();}
EACH{float z0=0.f;
UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){z0+=got[i][u][0];}
z0=strips_sum(z0);
float z1=0.f;
UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){z1+=got[i][u][1];}
z1=strips_sum(z1);
float z2=0.f;
UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){z2+=got[i][u][2];}
z2=strips_sum(z2);
float z3=0.f;
UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){z3+=got[i][u][3];}
z3=strips_sum(z3);
v324_0[i]=z0;
v362_0[i]=z1;
v411_0[i]=z2;
v449_0[i]=z3;}}

EACH{v325_0[i]=(v324_0[i]*K(-0.5));
v326_0[i]=(v325_0[i]*v218_0[i]);
v327_0[i]=(v326_0[i]*K(0.015625));
v328_0[i]=(v327_0[i]*k0_0[i]);
v329_0[i]=(v328_0[i]+v328_0[i]);
v330_0[i]=(v303_0[i]+v329_0[i]);
v363_0[i]=(w0_0[i]*v362_0[i]);
v367_0[i]=(v363_0[i]*K(0.015625));
v368_0[i]=(v330_0[i]+v367_0[i]);
v369_0[i]=(v327_0[i]*k0_1[i]);
v370_0[i]=(v369_0[i]+v369_0[i]);
v371_0[i]=(v345_0[i]+v370_0[i]);
v372_0[i]=(v371_0[i]+v367_0[i]);
v373_0[i]=(v327_0[i]*k0_2[i]);
v374_0[i]=(v373_0[i]+v373_0[i]);
v375_0[i]=(v334_0[i]+v374_0[i]);
v376_0[i]=(v375_0[i]+v367_0[i]);
v377_0[i]=(v327_0[i]*k0_3[i]);
v378_0[i]=(v377_0[i]+v377_0[i]);
v379_0[i]=(v158_0[i]+v378_0[i]);
v380_0[i]=(v379_0[i]+v367_0[i]);
hand<96,1*KBLK>((elem*)(near+1344)+(beat&1)*BM*96,near+256+(beat&1)*WARPS*8,0*HP,live[i]&&col?v368_0[i]:0.f,slice,i,wait.over);
hand<96,1*KBLK>((elem*)(near+1344)+(beat&1)*BM*96,near+256+(beat&1)*WARPS*8,1*HP,live[i]&&col?v372_0[i]:0.f,slice,i,wait.over);
hand<96,1*KBLK>((elem*)(near+1344)+(beat&1)*BM*96,near+256+(beat&1)*WARPS*8,2*HP,live[i]&&col?v376_0[i]:0.f,slice,i,wait.over);
hand<96,1*KBLK>((elem*)(near+1344)+(beat&1)*BM*96,near+256+(beat&1)*WARPS*8,3*HP,live[i]&&col?v380_0[i]:0.f,slice,i,wait.over);
put2(SHARED+(L)at[i]*SW+jj+0*HP,SHARED+(L)at[i]*SW+jj+1*HP,(live[i]&&col?v368_0[i]:0.f),(live[i]&&col?v372_0[i]:0.f),on[i]);
put2(SHARED+(L)at[i]*SW+jj+2*HP,SHARED+(L)at[i]*SW+jj+3*HP,(live[i]&&col?v376_0[i]:0.f),(live[i]&&col?v380_0[i]:0.f),on[i]);
v412_0[i]=(v411_0[i]*K(-0.5));
v413_0[i]=(v412_0[i]*v260_0[i]);
v414_0[i]=(v413_0[i]*K(0.015625));
v415_0[i]=(v414_0[i]*v34_0[i]);
v416_0[i]=(v415_0[i]+v415_0[i]);
v417_0[i]=(v394_0[i]+v416_0[i]);
v450_0[i]=(v13_0[i]*v449_0[i]);
v454_0[i]=(v450_0[i]*K(0.015625));
v455_0[i]=(v417_0[i]+v454_0[i]);
v456_0[i]=(v414_0[i]*v47_0[i]);
v457_0[i]=(v456_0[i]+v456_0[i]);
v458_0[i]=(v432_0[i]+v457_0[i]);
v459_0[i]=(v458_0[i]+v454_0[i]);
v460_0[i]=(v414_0[i]*v60_0[i]);
v461_0[i]=(v460_0[i]+v460_0[i]);
v462_0[i]=(v421_0[i]+v461_0[i]);
v463_0[i]=(v462_0[i]+v454_0[i]);
v464_0[i]=(v414_0[i]*v73_0[i]);
v465_0[i]=(v464_0[i]+v464_0[i]);
v466_0[i]=(v165_0[i]+v465_0[i]);
v467_0[i]=(v466_0[i]+v454_0[i]);
put2(SHARED+(L)at[i]*SW+jj+4*HP,SHARED+(L)at[i]*SW+jj+5*HP,(live[i]&&col?v455_0[i]:0.f),(live[i]&&col?v459_0[i]:0.f),on[i]);
put2(SHARED+(L)at[i]*SW+jj+6*HP,SHARED+(L)at[i]*SW+jj+7*HP,(live[i]&&col?v463_0[i]:0.f),(live[i]&&col?v467_0[i]:0.f),on[i]);}
here=part+(turn&1)*PART;turn++;
{receive(near+256+(beat&1)*WARPS*8+(tid>>5)/1*8,beat,share_of<64,1*KBLK>((tid>>5)/1),tid%32==0,wait);const elem*from[NT];UNROLL for(int n=0;n<NT;n++)from[n]=(elem*)(near+1344)+(beat&1)*BM*96+(n*8+(lane>>2))*96+(tid>>5)/1*1*KBLK+(lane&3)*VEC;
product<64,1,1,1,1,2,1,true>(m0,spill0,stage0,from,here+0,wait);}

__syncthreads();
EACH{const int line=(tid+i*NTH)/HS;v382_0[i]=total<1,1>(here+0,line,0*HS+j);}


EACH{
const float n0=v382_0[i];
const float n1=v383_0[i];
s0[i]=live[i]?n0:s0[i];
s1[i]=live[i]?n1:s1[i];}

EACH{}
}
for(int t=most;t<T;t++)EACH{L r=(L)t*B+row[i];(void)r;put(SHARED+r*SW+0*HP+jj,0.f,on[i]);put(SHARED+r*SW+1*HP+jj,0.f,on[i]);put(SHARED+r*SW+2*HP+jj,0.f,on[i]);put(SHARED+r*SW+3*HP+jj,0.f,on[i]);put(SHARED+r*SW+4*HP+jj,0.f,on[i]);put(SHARED+r*SW+5*HP+jj,0.f,on[i]);put(SHARED+r*SW+6*HP+jj,0.f,on[i]);put(SHARED+r*SW+7*HP+jj,0.f,on[i]);}
EACH{if(on[i]&&col){if(LAST0)LAST0[(L)row[i]*H_+jj]=toe(s0[i]);if(LAST1)LAST1[(L)row[i]*H_+jj]=toe(s1[i]);}}
}
const L rows=(blocks/NSL)*(NTH/HS),mine=(block/NSL)*(NTH/HS)+tid/HS;SUMS[(0*rows+mine)*HP+jj]=sum0;SUMS[(1*rows+mine)*HP+jj]=sum1;SUMS[(2*rows+mine)*HP+jj]=sum2;SUMS[(3*rows+mine)*HP+jj]=sum3;SUMS[(4*rows+mine)*HP+jj]=sum4;SUMS[(5*rows+mine)*HP+jj]=sum5;SUMS[(6*rows+mine)*HP+jj]=sum6;SUMS[(7*rows+mine)*HP+jj]=sum7;SUMS[(8*rows+mine)*HP+jj]=sum8;SUMS[(9*rows+mine)*HP+jj]=sum9;SUMS[(10*rows+mine)*HP+jj]=sum10;SUMS[(11*rows+mine)*HP+jj]=sum11;SUMS[(12*rows+mine)*HP+jj]=sum12;SUMS[(13*rows+mine)*HP+jj]=sum13;
meet();
if(is_set(aborted)){
for(int group=block/NSL;group<groups;group+=blocks/NSL){
int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
for(int t=0;t<T;t++)EACH{const L r=(L)t*B+row[i];(void)r;if(on[i])SHARED[r*SW+0*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+1*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+2*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+3*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+4*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+5*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+6*HP+jj]=toe(NOT_A_NUMBER);if(on[i])SHARED[r*SW+7*HP+jj]=toe(NOT_A_NUMBER);}
EACH{if(on[i]&&col&&LAST0)LAST0[(L)row[i]*H_+jj]=toe(NOT_A_NUMBER);if(on[i]&&col&&LAST1)LAST1[(L)row[i]*H_+jj]=toe(NOT_A_NUMBER);}
}
const L rows=(blocks/NSL)*(NTH/HS),mine=(block/NSL)*(NTH/HS)+tid/HS;SUMS[(0*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(1*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(2*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(3*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(4*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(5*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(6*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(7*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(8*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(9*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(10*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(11*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(12*rows+mine)*HP+jj]=NOT_A_NUMBER;SUMS[(13*rows+mine)*HP+jj]=NOT_A_NUMBER;
}
}
