#include "check.h"
#include "moonreel/exec.h"
int main(void){
  mr_device*d; CHECK_OK(mr_device_open("cpu",0,&d));
  int64_t n=4; mr_tensor*x,*y[6]; CHECK_OK(mr_tensor_new(MR_F32,1,&n,&x));
  float*p=mr_tensor_view(x)->data; p[0]=1;p[1]=2;p[2]=-1;
  for(int k=0;k<3;k++){CHECK_OK(mr_eager(d,"silu",NULL,0,&x,1,y));
  float*q=mr_tensor_view(y[0])->data; printf("%g %g %g %g\n",q[0],q[1],q[2],q[3]);mr_tensor_unref(y[0]);}
  mr_tensor_unref(x); mr_device_close(d); return check_done();}
