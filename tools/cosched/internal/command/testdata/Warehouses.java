// SPDX-License-Identifier: GPL-2.0
import java.util.concurrent.locks.LockSupport;

/**
 * 8 warehouses with 4 threads each, named after theirs. Its records are synchronized, and a
 * transaction writes a log now and then, so that the others have to wait.
 */
public class Warehouses {
	static final int WAREHOUSES = 8, WORKERS = 4, RECORDS = 1000;

	final long[] records = new long[RECORDS];

	synchronized void transaction(int nr) {
		for (int i = 0; i < RECORDS; i++)
			records[i] += nr;
		if (nr % 16 == 0)
			LockSupport.parkNanos(200_000);
	}

	public static void main(String[] args) throws InterruptedException {
		long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000;
		Thread[] threads = new Thread[WAREHOUSES * WORKERS];
		for (int w = 0; w < WAREHOUSES; w++) {
			Warehouses house = new Warehouses();
			for (int i = 0; i < WORKERS; i++) {
				Thread t = new Thread(() -> {
					for (int nr = 0; System.nanoTime() < end; nr++)
						house.transaction(nr);
				}, "w" + w);
				threads[w * WORKERS + i] = t;
				t.start();
			}
		}
		for (Thread t : threads)
			t.join();
	}
}
