typedef int mr_op_room;
