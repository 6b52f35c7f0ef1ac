typedef int mr_cpu_room;
