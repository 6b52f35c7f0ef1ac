/* graph */ typedef int mr_room_graph;
