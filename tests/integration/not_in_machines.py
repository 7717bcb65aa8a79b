# SPDX-License-Identifier: Apache-2.0
"""
Sandbox tests that do not run with VMs (HUTCH_TEST_LEVEL=microvm), each with the reason. All others
do. A name stands for a test, or for all tests of a class or a file. run.py reads this table,
reports the tests that it left out, and fails if a name does not exist.
"""

LEFT_OUT = {
    "test_sandbox_limits.Memory.test_files_in_memory_count_as_memory":
        "what is written is on the machine's disk, which is a file of the host's, and not in its memory",
    "test_sandbox_disk": "the disk of a machine is its own: test_machine and test_microvm have it",
    "test_sandbox_engine": "it is about the engines of containers",
    "test_sandbox_debug.Page": "the page's sessions are those of containers: an agent that lacks KVM, pids and channels as a container has them",
    "test_raider": "an agent that is the attacker's is another one in a machine: what it can say there is tried by test_machine_hostile",
    "test_container": "the table of the container engine, without sandboxes",
    "test_receipt": "likewise: rows of the container engine, each with one layer taken away; those of machines are in test_jail",
    "test_exhaust.Memory.test_what_the_kernel_remembers_is_counted":
        "the kernel that remembers is the sandbox's own, and has no other memory than the machine's",
    "test_inside.Inside.test_the_agents_file_is_not_written_through_a_process_that_runs_it":
        "the agent's file is no file of the host's, and is gone from the initramfs when commands run",
}
