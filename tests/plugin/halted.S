/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Firmware that halts for ever, without interrupts, while the timer of the PC fires. */
	.code16
	.globl	_start
_start:	cli
	movb	$0x34, %al
	outb	%al, $0x43
	movb	$0, %al
	outb	%al, $0x40
	outb	%al, $0x40
1:	hlt
	jmp	1b

	/* Where a processor begins. */
	.org	0xfff0
	jmp	_start
	.org	0x10000
