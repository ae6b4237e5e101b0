"""Run a folder of submitted notebooks and write what the judges say about each exercise as a table.

    python -m course_utils.collect submitted -o outcomes.csv

Every notebook runs in a process of its own with a limit of time and of memory, in a fresh kernel and an
empty folder. The outcome of an exercise is the judge's verdict on the object that the learner's cell defined;
what a notebook prints, or has stored as output, counts for nothing. A notebook that cannot be run gives a row
that says why.

This runs other people's code with your rights. The limits are for accidents: they do not keep a program from
reading your files, using the network, or starting something that outlives them. For strangers' work run the
command in a container or a virtual machine without a network.
"""
