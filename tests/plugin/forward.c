// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * forward: a QEMU plugin that sets the time for the guest forward.S, at each XCHG BX,BX: to 2^33 ns
 * at the first, and back to a second at the next.
 */
#include <glib.h>
#include <inttypes.h>
#include <string.h>

#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static const void *control;
static int64_t next_ns = 1ll << 33;

static void on_mark(unsigned int cpu, void *unused)
{
	(void)cpu;
	(void)unused;
	qemu_plugin_update_ns(control, next_ns);
	next_ns = 1000000000;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	static const uint8_t mark[] = { 0x87, 0xdb };
	size_t i, n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t b[16];

		if (qemu_plugin_insn_data(insn, b, sizeof(b)) == sizeof(mark) &&
		    !memcmp(b, mark, sizeof(mark)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
	}
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	(void)info;
	(void)argc;
	(void)argv;
	control = qemu_plugin_request_time_control();
	if (!control)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	return 0;
}
