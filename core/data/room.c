/* data */ typedef int mr_room_data;
