/* bench */ typedef int mr_room_bench;
