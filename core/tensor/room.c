/* tensor */ typedef int mr_room_tensor;
