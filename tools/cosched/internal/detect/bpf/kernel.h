/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few fields of the kernel that detect.bpf.c reads. Their offsets are those of
 * the kernel that it is loaded into (CO-RE).
 */
#ifndef DETECT_KERNEL_H
#define DETECT_KERNEL_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long si, di, orig_ax;
};

struct task_struct {
	int pid, tgid;
	char comm[16];
	int numa_scan_seq;
	unsigned long numa_faults_locality[3];
};

struct super_block {
	unsigned int s_dev;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_pgoff, vm_flags;
	struct file *vm_file;
};

#pragma clang attribute pop

#define VM_WRITE	0x2
#define VM_SHARED	0x8
#define PAGE_SHIFT	12	/* of x86-64 */

#endif
