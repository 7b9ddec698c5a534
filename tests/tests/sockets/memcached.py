"""Threads that set values of memcached's and get them back."""
import os
import socket
import sys
import threading

PORT = int(sys.argv[1])
done = []


def work(number):
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", PORT)) as connection:
            stream = connection.makefile("rwb")
            for key in range(50):
                value = os.urandom(500).hex().encode()
                stream.write(b"set k%d-%d 0 0 %d\r\n%s\r\n" % (number, key, len(value), value))
                stream.flush()
                assert stream.readline() == b"STORED\r\n"
                stream.write(b"get k%d-%d\r\n" % (number, key))
                stream.flush()
                assert stream.readline().startswith(b"VALUE ")
                assert stream.readline() == value + b"\r\n"
                assert stream.readline() == b"END\r\n"
    done.append(number)


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(done), "threads")
