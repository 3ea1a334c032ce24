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
extern "C" __global__ void __launch_bounds__(NTH,1) all_steps(const elem*M0,const float*A5,const float*A10,const elem*X4,const elem*P0,const elem*P1,const elem*P2,const elem*P3,const elem*P4,elem*KEEP,float*KROW,elem*Y,elem*SHARED,float*ROWS,const elem*FIRST0,const elem*FIRST1,elem*LAST0,elem*LAST1,const int*LENGTHS,int*REPORT,int T,int B,int reverse,int groups,int turned){
extern __shared__ char memory[];float*part=(float*)memory;uint4*spill=(uint4*)(memory+2*PART*4);
const int block=blockIdx.x,blocks=gridDim.x;
const int tid=threadIdx.x,lane=tid&31,slice=block%NSL,j=tid%HS,jj=slice*HS+j,strip=jj/RW;
const bool col=jj<H_;const int jc=col?jj:0;bool dead=false;int turn=0;float*here=part;(void)here;(void)spill;(void)turn;(void)lane;(void)strip;
u32 m0[16];uint4*spill0=spill+0,*stage0=spill+0;(void)stage0;load_matrix<16,4,2,1,1,1>(M0,slice,m0,spill0);
__syncthreads();
char*near=memory+9216;int beat=0;
for(int k=tid;k<40;k+=NTH)set_up(near+8*k);
__syncthreads();
for(int k=tid;k<2*BM;k+=NTH)expect(near+0+8*k,NRS*16);for(int k=tid;k<2*BM;k+=NTH)expect(near+128+8*k,NRS*16);for(int k=tid;k<2*WARPS;k+=NTH)expect(near+256+8*k,share_of<16,1*KBLK>(k%WARPS));
meet();
const float p0_0=tof(P0[0*H_+jc]);const float p0_1=tof(P0[1*H_+jc]);const float p0_2=tof(P0[2*H_+jc]);const float p0_3=tof(P0[3*H_+jc]);const float p1_0=tof(P1[0*H_+jc]);const float p1_1=tof(P1[1*H_+jc]);const float p1_2=tof(P1[2*H_+jc]);const float p1_3=tof(P1[3*H_+jc]);const float p2_0=tof(P2[0*H_+jc]);const float p2_1=tof(P2[1*H_+jc]);const float p2_2=tof(P2[2*H_+jc]);const float p2_3=tof(P2[3*H_+jc]);const float p3_0=tof(P3[0*H_+jc]);const float p4_0=tof(P4[0*H_+jc]);

for(int group=block/NSL;group<groups;group+=blocks/NSL){
int len[EPT],row[EPT];bool on[EPT];int most;
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;len[i]=LENGTHS?LENGTHS[b]:T;}
most=LENGTHS?LENGTHS[group*BM]:T;  // the longest of a group comes first
int prow[NT],plen[NT];
UNROLL for(int n=0;n<NT;n++){int b=group*BM+n*8+(lane>>2);b=b<B?b:B-1;prow[n]=LENGTHS?LENGTHS[B+b]:b;plen[n]=LENGTHS?LENGTHS[b]:T;}
(void)prow;(void)plen;
float v7_0[EPT];float v74_0[EPT];float v11_0[EPT];float v13_0[EPT];float v14_0[EPT];float v75_0[EPT];float v77_0[EPT];float v79_0[EPT];float v48_0[EPT];float v49_0[EPT];float v51_0[EPT];float v53_0[EPT];float v35_0[EPT];float v36_0[EPT];float v38_0[EPT];float v40_0[EPT];float v61_0[EPT];float v62_0[EPT];float v64_0[EPT];float v66_0[EPT];float v20_0[EPT];float v20_1[EPT];float v20_2[EPT];float v20_3[EPT];float z1_0[EPT];float z1_1[EPT];float v21_0[EPT];float v25_0[EPT];float v22_0[EPT];float v55_0[EPT];float v26_0[EPT];float v27_0[EPT];float v28_0[EPT];float v56_0[EPT];float v58_0[EPT];float v59_0[EPT];float v88_0[EPT];float v89_0[EPT];float v42_0[EPT];float v43_0[EPT];float v45_0[EPT];float v46_0[EPT];float v87_0[EPT];float v68_0[EPT];float v69_0[EPT];float v71_0[EPT];float v72_0[EPT];float v86_0[EPT];float v90_0[EPT];float v91_0[EPT];float z2_0[EPT];float z2_1[EPT];float v81_0[EPT];float v82_0[EPT];float v84_0[EPT];float v85_0[EPT];float v92_0[EPT];float v23_0[EPT];float v23_1[EPT];float v23_2[EPT];float v23_3[EPT];float v93_0[EPT];float v98_0[EPT];float v95_0[EPT];float v96_0[EPT];float v99_0[EPT];float v100_0[EPT];float v101_0[EPT];float v102_0[EPT];float v104_0[EPT];float v106_0[EPT];float v107_0[EPT];float v108_0[EPT];
float s0[EPT];UNROLL for(int i=0;i<EPT;i++)s0[i]=FIRST0?tof(FIRST0[(L)row[i]*H_+jc]):0.f;
float s1[EPT];UNROLL for(int i=0;i<EPT;i++)s1[i]=FIRST1?tof(FIRST1[(L)row[i]*H_+jc]):0.f;

bool live[EPT],up[EPT];int at[EPT],next[EPT],spot[EPT];
float raw_a5_0[EPT];float raw_a10_0[EPT];elem raw_x4_0[EPT];elem raw_x4_1[EPT];elem raw_x4_2[EPT];elem raw_x4_3[EPT];float a5_0[EPT];float a10_0[EPT];float x4_0[EPT];float x4_1[EPT];float x4_2[EPT];float x4_3[EPT];
auto fetch=[&](){EACH{const L r=next[i];(void)r;raw_a5_0[i]=A5[r];raw_a10_0[i]=A10[r];raw_x4_0[i]=X4[r*(4*H_)+0*H_+jc];raw_x4_1[i]=X4[r*(4*H_)+1*H_+jc];raw_x4_2[i]=X4[r*(4*H_)+2*H_+jc];raw_x4_3[i]=X4[r*(4*H_)+3*H_+jc];}};
auto look=[&](int t){UNROLL for(int i=0;i<EPT;i++){up[i]=t<len[i];spot[i]=place(t,len[i],reverse);next[i]=spot[i]*B+row[i];}};
auto prepare=[&](){EACH{a5_0[i]=raw_a5_0[i];a10_0[i]=raw_a10_0[i];x4_0[i]=tof(raw_x4_0[i]);x4_1[i]=tof(raw_x4_1[i]);x4_2[i]=tof(raw_x4_2[i]);x4_3[i]=tof(raw_x4_3[i]);}};
auto open=[&](){EACH{hand<32,1*KBLK>((elem*)(near+1344)+((beat+1)&1)*BM*32,near+256+((beat+1)&1)*WARPS*8,0*HP,up[i]&&col?s0[i]:0.f,slice,i,dead);
put(SHARED+(L)next[i]*SW+jj+0*HP,(up[i]&&col?s0[i]:0.f),on[i]);}};
if(most){look(0);fetch();open();}
for(int t=0;t<most;t++){beat++;
UNROLL for(int i=0;i<EPT;i++){live[i]=up[i];at[i]=next[i];}
prepare();


look(t+1);
if(t+1<most){fetch();}

EACH{v7_0[i]=(a5_0[i]*K(0.015625));
v74_0[i]=(x4_3[i]-v7_0[i]);
v11_0[i]=(a10_0[i]*K(0.015625));
v13_0[i]=(v11_0[i]+K(1e-05));
v14_0[i]=r_rsqrt(v13_0[i]);
v75_0[i]=(v74_0[i]*v14_0[i]);
v77_0[i]=(v75_0[i]*p0_3);
v79_0[i]=(v77_0[i]+p1_3);
v48_0[i]=(x4_1[i]-v7_0[i]);
v49_0[i]=(v48_0[i]*v14_0[i]);
v51_0[i]=(v49_0[i]*p0_1);
v53_0[i]=(v51_0[i]+p1_1);
v35_0[i]=(x4_0[i]-v7_0[i]);
v36_0[i]=(v35_0[i]*v14_0[i]);
v38_0[i]=(v36_0[i]*p0_0);
v40_0[i]=(v38_0[i]+p1_0);
v61_0[i]=(x4_2[i]-v7_0[i]);
v62_0[i]=(v61_0[i]*v14_0[i]);
v64_0[i]=(v62_0[i]*p0_2);
v66_0[i]=(v64_0[i]+p1_2);}
here=part+(turn&1)*PART;turn++;
{receive(near+256+(beat&1)*WARPS*8+(tid>>5)/1*8,beat,share_of<16,1*KBLK>((tid>>5)/1),tid%32==0,dead);const elem*from[NT];UNROLL for(int n=0;n<NT;n++)from[n]=(elem*)(near+1344)+(beat&1)*BM*32+(n*8+(lane>>2))*32+(tid>>5)/1*1*KBLK+(lane&3)*VEC;
product<16,2,1,1,1,2,1,true>(m0,spill0,stage0,from,here+0,dead);}
__syncthreads();
EACH{const int line=(tid+i*NTH)/HS;v20_0[i]=total<2,1>(here+0,line,0*HS+j);v20_1[i]=total<2,1>(here+0,line,1*HS+j);v20_2[i]=total<2,1>(here+0,line,2*HS+j);v20_3[i]=total<2,1>(here+0,line,3*HS+j);}

EACH{z1_0[i]=row_sum(col?v20_0[i]+v20_1[i]+v20_2[i]+v20_3[i]:0.f);
const float near1=first_of_row(v20_0[i]);
const float square1=row_sum(col?(v20_0[i]-near1)*(v20_0[i]-near1)+(v20_1[i]-near1)*(v20_1[i]-near1)+(v20_2[i]-near1)*(v20_2[i]-near1)+(v20_3[i]-near1)*(v20_3[i]-near1):0.f);
const float away1=z1_0[i]*(column_share(strip)*K(0.25))-near1;
z1_1[i]=r_max(square1-4*real_columns(strip)*away1*away1,0.f);
}
EACH{
{float*to=(float*)(near+320)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4+strip*4;char*bar=near+0+((beat&1)*BM+(tid+i*NTH)/HS)*8;UNROLL for(int u=0;u<NSL;u+=RW){const int s=u+j%RW;if(s<NSL&&!dead){hand4(to+0,bar,s,make_uint4(word(z1_0[i]),word(z1_1[i]),word(0.f),word(0.f)));}}}
}

{float got[EPT][TURNS][4];
EACH{receive(near+0+((beat&1)*BM+(tid+i*NTH)/HS)*8,beat,NRS*16,j==0,dead);
const float*all=(float*)(near+320)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4;UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){got[i][u][0]=all[s*4+0];got[i][u][1]=all[s*4+1];}}
__syncwarp();}
EACH{const float near1=first_of_row(got[i][0][0]*(column_share(0)*K(0.25)));float apart1=0.f,both1=0.f;
UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){const float n=4*real_columns(s),d=got[i][u][0]*(column_share(s)*K(0.25))-near1;apart1+=n*d;both1+=got[i][u][1]+n*d*d;}}
apart1=strips_sum(apart1);both1=strips_sum(both1);
const float z0=near1*(4.f*H_)+apart1;
const float z1=r_max(both1-apart1*apart1*(1.f/(4*H_)),0.f);
v21_0[i]=z0;
v25_0[i]=z1;}}

EACH{v22_0[i]=(v21_0[i]*K(0.015625));
v55_0[i]=(v20_1[i]-v22_0[i]);
v26_0[i]=(v25_0[i]*K(0.015625));
v27_0[i]=(v26_0[i]+K(1e-05));
v28_0[i]=r_rsqrt(v27_0[i]);
v56_0[i]=(v55_0[i]*v28_0[i]);
v58_0[i]=(v56_0[i]*p2_1);
v59_0[i]=(v53_0[i]+v58_0[i]);
v88_0[i]=r_sigmoid(v59_0[i]);
v89_0[i]=(v88_0[i]*s1[i]);
v42_0[i]=(v20_0[i]-v22_0[i]);
v43_0[i]=(v42_0[i]*v28_0[i]);
v45_0[i]=(v43_0[i]*p2_0);
v46_0[i]=(v40_0[i]+v45_0[i]);
v87_0[i]=r_sigmoid(v46_0[i]);
v68_0[i]=(v20_2[i]-v22_0[i]);
v69_0[i]=(v68_0[i]*v28_0[i]);
v71_0[i]=(v69_0[i]*p2_2);
v72_0[i]=(v66_0[i]+v71_0[i]);
v86_0[i]=r_tanh(v72_0[i]);
v90_0[i]=(v87_0[i]*v86_0[i]);
v91_0[i]=(v89_0[i]+v90_0[i]);
z2_0[i]=row_sum(col?v91_0[i]:0.f);
const float near1=first_of_row(v91_0[i]);
const float square1=row_sum(col?(v91_0[i]-near1)*(v91_0[i]-near1):0.f);
const float away1=z2_0[i]*(column_share(strip)*K(1.0))-near1;
z2_1[i]=r_max(square1-1*real_columns(strip)*away1*away1,0.f);
}
EACH{
{float*to=(float*)(near+832)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4+strip*4;char*bar=near+128+((beat&1)*BM+(tid+i*NTH)/HS)*8;UNROLL for(int u=0;u<NSL;u+=RW){const int s=u+j%RW;if(s<NSL&&!dead){hand4(to+0,bar,s,make_uint4(word(z2_0[i]),word(z2_1[i]),word(0.f),word(0.f)));}}}
v81_0[i]=(v20_3[i]-v22_0[i]);
v82_0[i]=(v81_0[i]*v28_0[i]);
v84_0[i]=(v82_0[i]*p2_3);
v85_0[i]=(v79_0[i]+v84_0[i]);
v92_0[i]=r_sigmoid(v85_0[i]);
v23_0[i]=(v20_0[i]-v22_0[i]);
v23_1[i]=(v20_1[i]-v22_0[i]);
v23_2[i]=(v20_2[i]-v22_0[i]);
v23_3[i]=(v20_3[i]-v22_0[i]);}


{float got[EPT][TURNS][4];
EACH{receive(near+128+((beat&1)*BM+(tid+i*NTH)/HS)*8,beat,NRS*16,j==0,dead);
const float*all=(float*)(near+832)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4;UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){got[i][u][0]=all[s*4+0];got[i][u][1]=all[s*4+1];}}
__syncwarp();}
EACH{const float near1=first_of_row(got[i][0][0]*(column_share(0)*K(1.0)));float apart1=0.f,both1=0.f;
UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){const float n=1*real_columns(s),d=got[i][u][0]*(column_share(s)*K(1.0))-near1;apart1+=n*d;both1+=got[i][u][1]+n*d*d;}}
apart1=strips_sum(apart1);both1=strips_sum(both1);
const float z0=near1*(1.f*H_)+apart1;
const float z1=r_max(both1-apart1*apart1*(1.f/(1*H_)),0.f);
v93_0[i]=z0;
v98_0[i]=z1;}}

float y[EPT];Record<NK> record[EPT];float rows[EPT][NR];
EACH{v95_0[i]=(v93_0[i]*K(0.0625));
v96_0[i]=(v91_0[i]-v95_0[i]);
v99_0[i]=(v98_0[i]*K(0.0625));
v100_0[i]=(v99_0[i]+K(1e-05));
v101_0[i]=r_rsqrt(v100_0[i]);
v102_0[i]=(v96_0[i]*v101_0[i]);
v104_0[i]=(v102_0[i]*p3_0);
v106_0[i]=(v104_0[i]+p4_0);
v107_0[i]=r_tanh(v106_0[i]);
v108_0[i]=(v92_0[i]*v107_0[i]);

record[i].v[0]=toe(v23_0[i]);
record[i].v[1]=toe(v23_1[i]);
record[i].v[2]=toe(v23_2[i]);
record[i].v[3]=toe(v23_3[i]);
record[i].v[4]=toe(s1[i]);
record[i].v[5]=toe(v86_0[i]);
record[i].v[6]=toe(v87_0[i]);
record[i].v[7]=toe(v88_0[i]);
record[i].v[8]=toe(v92_0[i]);
record[i].v[9]=toe(v107_0[i]);
record[i].v[10]=toe(0.f);
record[i].v[11]=toe(0.f);
rows[i][0]=v28_0[i];
rows[i][1]=v93_0[i];
rows[i][2]=v101_0[i];
const float n0=v108_0[i];
const float n1=v91_0[i];
s0[i]=live[i]?n0:s0[i];
s1[i]=live[i]?n1:s1[i];
y[i]=live[i]?n0:0.f;}
if(t+1<most)open();
EACH{if(on[i]&&col)Y[(turned?(L)at[i]:(L)row[i]*T+place(t,len[i],reverse))*(SIDES*H_)+jj]=toe(y[i]);if(on[i]&&col)*(Record<NK>*)(KEEP+((L)at[i]*H_+jj)*NK)=record[i];if(on[i]&&jj==0){KROW[(L)at[i]*NR+0]=rows[i][0];KROW[(L)at[i]*NR+1]=rows[i][1];KROW[(L)at[i]*NR+2]=rows[i][2];}}
}
for(int t=most;t<T;t++)EACH{L r=(L)t*B+row[i];(void)r;put(SHARED+r*SW+0*HP+jj,0.f,on[i]);if(on[i]&&col)Y[(turned?r:(L)row[i]*T+t)*(SIDES*H_)+jj]=toe(0.f);}
EACH{if(on[i]&&col){if(LAST0)LAST0[(L)row[i]*H_+jj]=toe(s0[i]);if(LAST1)LAST1[(L)row[i]*H_+jj]=toe(s1[i]);}}
}

meet();if(dead){*(volatile int*)REPORT=1;__threadfence_system();}
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
extern "C" __global__ void __launch_bounds__(NTH,1) all_steps(const elem*M0,const float*A5,const float*A10,const elem*X4,const elem*P0,const elem*P2,const elem*P3,const elem*KEEP,const float*KROW,const elem*OPERAND,const elem*DY,float*SUMS,elem*SHARED,float*ROWS,const elem*FIRST0,const elem*FIRST1,elem*LAST0,elem*LAST1,const int*LENGTHS,int*REPORT,int T,int B,int reverse,int groups,int turned){
extern __shared__ char memory[];float*part=(float*)memory;uint4*spill=(uint4*)(memory+2*PART*4);
const int block=blockIdx.x,blocks=gridDim.x;
const int tid=threadIdx.x,lane=tid&31,slice=block%NSL,j=tid%HS,jj=slice*HS+j,strip=jj/RW;
const bool col=jj<H_;const int jc=col?jj:0;bool dead=false;int turn=0;float*here=part;(void)here;(void)spill;(void)turn;(void)lane;(void)strip;
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
int len[EPT],row[EPT];bool on[EPT];int most;
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;len[i]=LENGTHS?LENGTHS[b]:T;}
most=LENGTHS?LENGTHS[group*BM]:T;  // the longest of a group comes first
int prow[NT],plen[NT];
UNROLL for(int n=0;n<NT;n++){int b=group*BM+n*8+(lane>>2);b=b<B?b:B-1;prow[n]=LENGTHS?LENGTHS[B+b]:b;plen[n]=LENGTHS?LENGTHS[b]:T;}
(void)prow;(void)plen;
float v112_0[EPT];float v113_0[EPT];float v114_0[EPT];float v115_0[EPT];float v116_0[EPT];float v89_0[EPT];float v90_0[EPT];float v91_0[EPT];float v95_0[EPT];float v96_0[EPT];float v119_0[EPT];float z0_0[EPT];float z0_1[EPT];float v118_0[EPT];float v123_0[EPT];float v124_0[EPT];float v149_0[EPT];float v150_0[EPT];float v111_0[EPT];float v137_0[EPT];float v138_0[EPT];float v139_0[EPT];float v155_0[EPT];float v158_0[EPT];float v152_0[EPT];float v153_0[EPT];float v146_0[EPT];float v147_0[EPT];float v216_0[EPT];float v217_0[EPT];float v338_0[EPT];float v157_0[EPT];float v11_0[EPT];float v13_0[EPT];float v14_0[EPT];float v162_0[EPT];float v7_0[EPT];float v74_0[EPT];float v165_0[EPT];float v61_0[EPT];float v48_0[EPT];float v35_0[EPT];float v258_0[EPT];float v259_0[EPT];float v426_0[EPT];float v164_0[EPT];float v102_0[EPT];float v117_0[EPT];float v43_0[EPT];float v56_0[EPT];float v69_0[EPT];float v82_0[EPT];float v156_0[EPT];float v36_0[EPT];float v49_0[EPT];float v62_0[EPT];float v75_0[EPT];float v163_0[EPT];float v120_0[EPT];float v293_0[EPT];float v122_0[EPT];float v125_0[EPT];float v126_0[EPT];float v129_0[EPT];float v130_0[EPT];float v131_0[EPT];float v140_0[EPT];float v294_0[EPT];float v295_0[EPT];float v296_0[EPT];float v297_0[EPT];float v302_0[EPT];float v303_0[EPT];float v304_0[EPT];float v305_0[EPT];float v310_0[EPT];float v311_0[EPT];float v312_0[EPT];float v313_0[EPT];float v298_0[EPT];float v299_0[EPT];float v300_0[EPT];float v318_0[EPT];float v339_0[EPT];float v349_0[EPT];float v358_0[EPT];float v394_0[EPT];float v395_0[EPT];float v400_0[EPT];float v401_0[EPT];float v392_0[EPT];float v406_0[EPT];float v427_0[EPT];float v437_0[EPT];float v446_0[EPT];float z1_0[EPT];float z1_1[EPT];float z1_2[EPT];float z1_3[EPT];float v301_0[EPT];float v343_0[EPT];float v332_0[EPT];float v382_0[EPT];float v393_0[EPT];float v431_0[EPT];float v420_0[EPT];float v383_0[EPT];float v384_0[EPT];float v385_0[EPT];float v388_0[EPT];float v389_0[EPT];float v390_0[EPT];float v322_0[EPT];float v360_0[EPT];float v410_0[EPT];float v448_0[EPT];float v323_0[EPT];float v324_0[EPT];float v325_0[EPT];float v326_0[EPT];float v327_0[EPT];float v328_0[EPT];float v361_0[EPT];float v366_0[EPT];float v367_0[EPT];float v368_0[EPT];float v369_0[EPT];float v370_0[EPT];float v371_0[EPT];float v372_0[EPT];float v373_0[EPT];float v374_0[EPT];float v375_0[EPT];float v376_0[EPT];float v377_0[EPT];float v378_0[EPT];float v379_0[EPT];float v411_0[EPT];float v412_0[EPT];float v413_0[EPT];float v414_0[EPT];float v415_0[EPT];float v416_0[EPT];float v449_0[EPT];float v453_0[EPT];float v454_0[EPT];float v455_0[EPT];float v456_0[EPT];float v457_0[EPT];float v458_0[EPT];float v459_0[EPT];float v460_0[EPT];float v461_0[EPT];float v462_0[EPT];float v463_0[EPT];float v464_0[EPT];float v465_0[EPT];float v466_0[EPT];float v381_0[EPT];
float s0[EPT];UNROLL for(int i=0;i<EPT;i++)s0[i]=FIRST0?tof(FIRST0[(L)row[i]*H_+jc]):0.f;
float s1[EPT];UNROLL for(int i=0;i<EPT;i++)s1[i]=FIRST1?tof(FIRST1[(L)row[i]*H_+jc]):0.f;

bool live[EPT],up[EPT];int at[EPT],next[EPT],spot[EPT];
float raw_a5_0[EPT];float raw_a10_0[EPT];elem raw_x4_0[EPT];elem raw_x4_1[EPT];elem raw_x4_2[EPT];elem raw_x4_3[EPT];float raw_w0_0[EPT];float raw_w0_1[EPT];float raw_w0_2[EPT];Record<NK> raw_keep[EPT];elem raw_dy[EPT];float dy[EPT],g0[EPT];float a5_0[EPT];float a10_0[EPT];float k0_0[EPT];float k0_1[EPT];float k0_2[EPT];float k0_3[EPT];float k0_4[EPT];float k0_5[EPT];float k0_6[EPT];float k0_7[EPT];float k0_8[EPT];float k0_9[EPT];float x4_0[EPT];float x4_1[EPT];float x4_2[EPT];float x4_3[EPT];float w0_0[EPT];float w0_1[EPT];float w0_2[EPT];
auto fetch=[&](){EACH{const L r=next[i];(void)r;raw_a5_0[i]=A5[r];raw_a10_0[i]=A10[r];raw_x4_0[i]=X4[r*(4*H_)+0*H_+jc];raw_x4_1[i]=X4[r*(4*H_)+1*H_+jc];raw_x4_2[i]=X4[r*(4*H_)+2*H_+jc];raw_x4_3[i]=X4[r*(4*H_)+3*H_+jc];raw_w0_0[i]=KROW[r*NR+0];raw_w0_1[i]=KROW[r*NR+1];raw_w0_2[i]=KROW[r*NR+2];raw_keep[i]=*(const Record<NK>*)(KEEP+(r*H_+jc)*NK);raw_dy[i]=DY?DY[(turned?r:(L)row[i]*T+spot[i])*(SIDES*H_)+jc]:toe(0.f);}};
auto look=[&](int t){UNROLL for(int i=0;i<EPT;i++){up[i]=t<len[i];spot[i]=place(t,len[i],reverse);next[i]=spot[i]*B+row[i];}};
auto prepare=[&](){EACH{a5_0[i]=raw_a5_0[i];a10_0[i]=raw_a10_0[i];k0_0[i]=tof(raw_keep[i].v[0]);k0_1[i]=tof(raw_keep[i].v[1]);k0_2[i]=tof(raw_keep[i].v[2]);k0_3[i]=tof(raw_keep[i].v[3]);k0_4[i]=tof(raw_keep[i].v[4]);k0_5[i]=tof(raw_keep[i].v[5]);k0_6[i]=tof(raw_keep[i].v[6]);k0_7[i]=tof(raw_keep[i].v[7]);k0_8[i]=tof(raw_keep[i].v[8]);k0_9[i]=tof(raw_keep[i].v[9]);x4_0[i]=tof(raw_x4_0[i]);x4_1[i]=tof(raw_x4_1[i]);x4_2[i]=tof(raw_x4_2[i]);x4_3[i]=tof(raw_x4_3[i]);w0_0[i]=raw_w0_0[i];w0_1[i]=raw_w0_1[i];w0_2[i]=raw_w0_2[i];dy[i]=tof(raw_dy[i]);}};
auto open=[&](){EACH{v112_0[i]=(g0[i]*k0_8[i]);
v113_0[i]=(k0_9[i]*k0_9[i]);
v114_0[i]=(K(1.0)-v113_0[i]);
v115_0[i]=(v112_0[i]*v114_0[i]);
v116_0[i]=(v115_0[i]*p3_0);
v89_0[i]=(k0_7[i]*k0_4[i]);
v90_0[i]=(k0_6[i]*k0_5[i]);
v91_0[i]=(v89_0[i]+v90_0[i]);
v95_0[i]=(w0_1[i]*K(0.0625));
v96_0[i]=(v91_0[i]-v95_0[i]);
v119_0[i]=(v116_0[i]*v96_0[i]);
z0_0[i]=row_sum(col?v119_0[i]:0.f);
z0_1[i]=row_sum(col?v116_0[i]:0.f);
}
EACH{
{float*to=(float*)(near+320)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4+strip*4;char*bar=near+0+((beat&1)*BM+(tid+i*NTH)/HS)*8;UNROLL for(int u=0;u<NSL;u+=RW){const int s=u+j%RW;if(s<NSL&&!dead){hand4(to+0,bar,s,make_uint4(word(z0_0[i]),word(z0_1[i]),word(0.f),word(0.f)));}}}}};
if(most){look(most-1);fetch();}
for(int t=most-1;t>=0;t--){beat++;
UNROLL for(int i=0;i<EPT;i++){live[i]=up[i];at[i]=next[i];}
prepare();
EACH{g0[i]=s0[i]+dy[i];}
open();
look(t-1);
if(t>0){fetch();}
if(t>1)EACH{const int late=place(t-2,len[i],reverse);const L r=(L)late*B+row[i];if(on[i]){if(j*sizeof(elem)%32==0){touch(&X4[r*(4*H_)+0*H_+jc]);touch(&X4[r*(4*H_)+1*H_+jc]);touch(&X4[r*(4*H_)+2*H_+jc]);touch(&X4[r*(4*H_)+3*H_+jc]);if(DY)touch(DY+(turned?r:(L)row[i]*T+late)*(SIDES*H_)+jc);}if(j==0){touch(&A5[r]);touch(&A10[r]);touch(&KROW[r*NR+0]);}touch(KEEP+(r*H_+jc)*NK);}}
EACH{v118_0[i]=(v116_0[i]*w0_2[i]);
v123_0[i]=(w0_2[i]*w0_2[i]);
v124_0[i]=(w0_2[i]*v123_0[i]);
v149_0[i]=(K(1.0)-k0_6[i]);
v150_0[i]=(k0_6[i]*v149_0[i]);
v111_0[i]=(g0[i]*k0_9[i]);
v137_0[i]=(K(1.0)-k0_8[i]);
v138_0[i]=(k0_8[i]*v137_0[i]);
v139_0[i]=(v111_0[i]*v138_0[i]);
v155_0[i]=(v139_0[i]*p2_3);
v158_0[i]=(v155_0[i]*k0_3[i]);
v152_0[i]=(k0_5[i]*k0_5[i]);
v153_0[i]=(K(1.0)-v152_0[i]);
v146_0[i]=(K(1.0)-k0_7[i]);
v147_0[i]=(k0_7[i]*v146_0[i]);
v216_0[i]=(w0_0[i]*w0_0[i]);
v217_0[i]=(w0_0[i]*v216_0[i]);
v338_0[i]=(-v155_0[i]);
v157_0[i]=(v155_0[i]*w0_0[i]);
v11_0[i]=(a10_0[i]*K(0.015625));
v13_0[i]=(v11_0[i]+K(1e-05));
v14_0[i]=r_rsqrt(v13_0[i]);
v162_0[i]=(v139_0[i]*p0_3);
v7_0[i]=(a5_0[i]*K(0.015625));
v74_0[i]=(x4_3[i]-v7_0[i]);
v165_0[i]=(v162_0[i]*v74_0[i]);
v61_0[i]=(x4_2[i]-v7_0[i]);
v48_0[i]=(x4_1[i]-v7_0[i]);
v35_0[i]=(x4_0[i]-v7_0[i]);
v258_0[i]=(v14_0[i]*v14_0[i]);
v259_0[i]=(v14_0[i]*v258_0[i]);
v426_0[i]=(-v162_0[i]);
v164_0[i]=(v162_0[i]*v14_0[i]);
v102_0[i]=(v96_0[i]*w0_2[i]);
v117_0[i]=(v115_0[i]*v102_0[i]);
v43_0[i]=(k0_0[i]*w0_0[i]);
v56_0[i]=(k0_1[i]*w0_0[i]);
v69_0[i]=(k0_2[i]*w0_0[i]);
v82_0[i]=(k0_3[i]*w0_0[i]);
v156_0[i]=(v139_0[i]*v82_0[i]);
v36_0[i]=(v35_0[i]*v14_0[i]);
v49_0[i]=(v48_0[i]*v14_0[i]);
v62_0[i]=(v61_0[i]*v14_0[i]);
v75_0[i]=(v74_0[i]*v14_0[i]);
v163_0[i]=(v139_0[i]*v75_0[i]);
sum0+=live[i]&&on[i]&&col?v115_0[i]:0.f;
sum1+=live[i]&&on[i]&&col?v117_0[i]:0.f;
sum5+=live[i]&&on[i]&&col?v156_0[i]:0.f;
sum9+=live[i]&&on[i]&&col?v139_0[i]:0.f;
sum13+=live[i]&&on[i]&&col?v163_0[i]:0.f;}

{float got[EPT][TURNS][4];
EACH{receive(near+0+((beat&1)*BM+(tid+i*NTH)/HS)*8,beat,NRS*16,j==0,dead);
const float*all=(float*)(near+320)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4;UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){got[i][u][0]=all[s*4+0];got[i][u][1]=all[s*4+1];}}
__syncwarp();}
EACH{float z0=0.f;
UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){z0+=got[i][u][0];}
z0=strips_sum(z0);
float z1=0.f;
UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){z1+=got[i][u][1];}
z1=strips_sum(z1);
v120_0[i]=z0;
v293_0[i]=z1;}}

EACH{v122_0[i]=(v120_0[i]*K(-0.5));
v125_0[i]=(v122_0[i]*v124_0[i]);
v126_0[i]=(v125_0[i]*K(0.0625));
v129_0[i]=(v126_0[i]*v96_0[i]);
v130_0[i]=(v118_0[i]+v129_0[i]);
v131_0[i]=(v130_0[i]+v129_0[i]);
v140_0[i]=(s1[i]+v131_0[i]);
v294_0[i]=(w0_2[i]*v293_0[i]);
v295_0[i]=(-v294_0[i]);
v296_0[i]=(v295_0[i]*K(0.0625));
v297_0[i]=(v140_0[i]+v296_0[i]);
v302_0[i]=(v297_0[i]*k0_6[i]);
v303_0[i]=(v302_0[i]*v153_0[i]);
v304_0[i]=(v303_0[i]*p2_2);
v305_0[i]=(v304_0[i]*k0_2[i]);
v310_0[i]=(v297_0[i]*k0_4[i]);
v311_0[i]=(v310_0[i]*v147_0[i]);
v312_0[i]=(v311_0[i]*p2_1);
v313_0[i]=(v312_0[i]*k0_1[i]);
v298_0[i]=(v297_0[i]*k0_5[i]);
v299_0[i]=(v298_0[i]*v150_0[i]);
v300_0[i]=(v299_0[i]*p2_0);
v318_0[i]=(v300_0[i]*k0_0[i]);
v339_0[i]=(-v304_0[i]);
v349_0[i]=(-v312_0[i]);
v358_0[i]=(-v300_0[i]);
v394_0[i]=(v303_0[i]*p0_2);
v395_0[i]=(v394_0[i]*v61_0[i]);
v400_0[i]=(v311_0[i]*p0_1);
v401_0[i]=(v400_0[i]*v48_0[i]);
v392_0[i]=(v299_0[i]*p0_0);
v406_0[i]=(v392_0[i]*v35_0[i]);
v427_0[i]=(-v394_0[i]);
v437_0[i]=(-v400_0[i]);
v446_0[i]=(-v392_0[i]);
z1_0[i]=row_sum(col?v158_0[i]+v305_0[i]+v313_0[i]+v318_0[i]:0.f);
z1_1[i]=row_sum(col?v338_0[i]+v339_0[i]+v349_0[i]+v358_0[i]:0.f);
z1_2[i]=row_sum(col?v165_0[i]+v395_0[i]+v401_0[i]+v406_0[i]:0.f);
z1_3[i]=row_sum(col?v426_0[i]+v427_0[i]+v437_0[i]+v446_0[i]:0.f);
}
EACH{
{float*to=(float*)(near+832)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4+strip*4;char*bar=near+128+((beat&1)*BM+(tid+i*NTH)/HS)*8;UNROLL for(int u=0;u<NSL;u+=RW){const int s=u+j%RW;if(s<NSL&&!dead){hand4(to+0,bar,s,make_uint4(word(z1_0[i]),word(z1_1[i]),word(z1_2[i]),word(z1_3[i])));}}}
v301_0[i]=(v300_0[i]*w0_0[i]);
v343_0[i]=(v312_0[i]*w0_0[i]);
v332_0[i]=(v304_0[i]*w0_0[i]);
v382_0[i]=(v297_0[i]*k0_7[i]);
v393_0[i]=(v392_0[i]*v14_0[i]);
v431_0[i]=(v400_0[i]*v14_0[i]);
v420_0[i]=(v394_0[i]*v14_0[i]);
v383_0[i]=(v299_0[i]*v43_0[i]);
v384_0[i]=(v311_0[i]*v56_0[i]);
v385_0[i]=(v303_0[i]*v69_0[i]);
v388_0[i]=(v299_0[i]*v36_0[i]);
v389_0[i]=(v311_0[i]*v49_0[i]);
v390_0[i]=(v303_0[i]*v62_0[i]);
sum2+=live[i]&&on[i]&&col?v383_0[i]:0.f;
sum3+=live[i]&&on[i]&&col?v384_0[i]:0.f;
sum4+=live[i]&&on[i]&&col?v385_0[i]:0.f;
sum6+=live[i]&&on[i]&&col?v299_0[i]:0.f;
sum7+=live[i]&&on[i]&&col?v311_0[i]:0.f;
sum8+=live[i]&&on[i]&&col?v303_0[i]:0.f;
sum10+=live[i]&&on[i]&&col?v388_0[i]:0.f;
sum11+=live[i]&&on[i]&&col?v389_0[i]:0.f;
sum12+=live[i]&&on[i]&&col?v390_0[i]:0.f;}

{float got[EPT][TURNS][4];
EACH{receive(near+128+((beat&1)*BM+(tid+i*NTH)/HS)*8,beat,NRS*16,j==0,dead);
const float*all=(float*)(near+832)+((beat&1)*BM+(tid+i*NTH)/HS)*NRS*4;UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS){got[i][u][0]=all[s*4+0];got[i][u][1]=all[s*4+1];got[i][u][2]=all[s*4+2];got[i][u][3]=all[s*4+3];}}
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
v322_0[i]=z0;
v360_0[i]=z1;
v410_0[i]=z2;
v448_0[i]=z3;}}

EACH{v323_0[i]=(v322_0[i]*K(-0.5));
v324_0[i]=(v323_0[i]*v217_0[i]);
v325_0[i]=(v324_0[i]*K(0.015625));
v326_0[i]=(v325_0[i]*k0_0[i]);
v327_0[i]=(v326_0[i]+v326_0[i]);
v328_0[i]=(v301_0[i]+v327_0[i]);
v361_0[i]=(w0_0[i]*v360_0[i]);
v366_0[i]=(v361_0[i]*K(0.015625));
v367_0[i]=(v328_0[i]+v366_0[i]);
v368_0[i]=(v325_0[i]*k0_1[i]);
v369_0[i]=(v368_0[i]+v368_0[i]);
v370_0[i]=(v343_0[i]+v369_0[i]);
v371_0[i]=(v370_0[i]+v366_0[i]);
v372_0[i]=(v325_0[i]*k0_2[i]);
v373_0[i]=(v372_0[i]+v372_0[i]);
v374_0[i]=(v332_0[i]+v373_0[i]);
v375_0[i]=(v374_0[i]+v366_0[i]);
v376_0[i]=(v325_0[i]*k0_3[i]);
v377_0[i]=(v376_0[i]+v376_0[i]);
v378_0[i]=(v157_0[i]+v377_0[i]);
v379_0[i]=(v378_0[i]+v366_0[i]);
hand<96,1*KBLK>((elem*)(near+1344)+(beat&1)*BM*96,near+256+(beat&1)*WARPS*8,0*HP,live[i]&&col?v367_0[i]:0.f,slice,i,dead);
hand<96,1*KBLK>((elem*)(near+1344)+(beat&1)*BM*96,near+256+(beat&1)*WARPS*8,1*HP,live[i]&&col?v371_0[i]:0.f,slice,i,dead);
hand<96,1*KBLK>((elem*)(near+1344)+(beat&1)*BM*96,near+256+(beat&1)*WARPS*8,2*HP,live[i]&&col?v375_0[i]:0.f,slice,i,dead);
hand<96,1*KBLK>((elem*)(near+1344)+(beat&1)*BM*96,near+256+(beat&1)*WARPS*8,3*HP,live[i]&&col?v379_0[i]:0.f,slice,i,dead);
put2(SHARED+(L)at[i]*SW+jj+0*HP,SHARED+(L)at[i]*SW+jj+1*HP,(live[i]&&col?v367_0[i]:0.f),(live[i]&&col?v371_0[i]:0.f),on[i]);
put2(SHARED+(L)at[i]*SW+jj+2*HP,SHARED+(L)at[i]*SW+jj+3*HP,(live[i]&&col?v375_0[i]:0.f),(live[i]&&col?v379_0[i]:0.f),on[i]);
v411_0[i]=(v410_0[i]*K(-0.5));
v412_0[i]=(v411_0[i]*v259_0[i]);
v413_0[i]=(v412_0[i]*K(0.015625));
v414_0[i]=(v413_0[i]*v35_0[i]);
v415_0[i]=(v414_0[i]+v414_0[i]);
v416_0[i]=(v393_0[i]+v415_0[i]);
v449_0[i]=(v14_0[i]*v448_0[i]);
v453_0[i]=(v449_0[i]*K(0.015625));
v454_0[i]=(v416_0[i]+v453_0[i]);
v455_0[i]=(v413_0[i]*v48_0[i]);
v456_0[i]=(v455_0[i]+v455_0[i]);
v457_0[i]=(v431_0[i]+v456_0[i]);
v458_0[i]=(v457_0[i]+v453_0[i]);
v459_0[i]=(v413_0[i]*v61_0[i]);
v460_0[i]=(v459_0[i]+v459_0[i]);
v461_0[i]=(v420_0[i]+v460_0[i]);
v462_0[i]=(v461_0[i]+v453_0[i]);
v463_0[i]=(v413_0[i]*v74_0[i]);
v464_0[i]=(v463_0[i]+v463_0[i]);
v465_0[i]=(v164_0[i]+v464_0[i]);
v466_0[i]=(v465_0[i]+v453_0[i]);
put2(SHARED+(L)at[i]*SW+jj+4*HP,SHARED+(L)at[i]*SW+jj+5*HP,(live[i]&&col?v454_0[i]:0.f),(live[i]&&col?v458_0[i]:0.f),on[i]);
put2(SHARED+(L)at[i]*SW+jj+6*HP,SHARED+(L)at[i]*SW+jj+7*HP,(live[i]&&col?v462_0[i]:0.f),(live[i]&&col?v466_0[i]:0.f),on[i]);}
here=part+(turn&1)*PART;turn++;
{receive(near+256+(beat&1)*WARPS*8+(tid>>5)/1*8,beat,share_of<64,1*KBLK>((tid>>5)/1),tid%32==0,dead);const elem*from[NT];UNROLL for(int n=0;n<NT;n++)from[n]=(elem*)(near+1344)+(beat&1)*BM*96+(n*8+(lane>>2))*96+(tid>>5)/1*1*KBLK+(lane&3)*VEC;
product<64,1,1,1,1,2,1,true>(m0,spill0,stage0,from,here+0,dead);}

__syncthreads();
EACH{const int line=(tid+i*NTH)/HS;v381_0[i]=total<1,1>(here+0,line,0*HS+j);}


EACH{
const float n0=v381_0[i];
const float n1=v382_0[i];
s0[i]=live[i]?n0:s0[i];
s1[i]=live[i]?n1:s1[i];}

EACH{}
}
for(int t=most;t<T;t++)EACH{L r=(L)t*B+row[i];(void)r;put(SHARED+r*SW+0*HP+jj,0.f,on[i]);put(SHARED+r*SW+1*HP+jj,0.f,on[i]);put(SHARED+r*SW+2*HP+jj,0.f,on[i]);put(SHARED+r*SW+3*HP+jj,0.f,on[i]);put(SHARED+r*SW+4*HP+jj,0.f,on[i]);put(SHARED+r*SW+5*HP+jj,0.f,on[i]);put(SHARED+r*SW+6*HP+jj,0.f,on[i]);put(SHARED+r*SW+7*HP+jj,0.f,on[i]);}
EACH{if(on[i]&&col){if(LAST0)LAST0[(L)row[i]*H_+jj]=toe(s0[i]);if(LAST1)LAST1[(L)row[i]*H_+jj]=toe(s1[i]);}}
}
const L rows=(blocks/NSL)*(NTH/HS),mine=(block/NSL)*(NTH/HS)+tid/HS;SUMS[(0*rows+mine)*HP+jj]=sum0;SUMS[(1*rows+mine)*HP+jj]=sum1;SUMS[(2*rows+mine)*HP+jj]=sum2;SUMS[(3*rows+mine)*HP+jj]=sum3;SUMS[(4*rows+mine)*HP+jj]=sum4;SUMS[(5*rows+mine)*HP+jj]=sum5;SUMS[(6*rows+mine)*HP+jj]=sum6;SUMS[(7*rows+mine)*HP+jj]=sum7;SUMS[(8*rows+mine)*HP+jj]=sum8;SUMS[(9*rows+mine)*HP+jj]=sum9;SUMS[(10*rows+mine)*HP+jj]=sum10;SUMS[(11*rows+mine)*HP+jj]=sum11;SUMS[(12*rows+mine)*HP+jj]=sum12;SUMS[(13*rows+mine)*HP+jj]=sum13;
meet();if(dead){*(volatile int*)REPORT=1;__threadfence_system();}
}
