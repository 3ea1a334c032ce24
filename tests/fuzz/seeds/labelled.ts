# two classes
@problemName Small
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength false
@classLabel true up down
@data
1.5,2,3e1:4,-5,6:up
0.5,-1:7,8:down
9,8,7,6:1,2,3,4:up
