package process

import "testing"

func TestStepArgs(t *testing.T) {
	for _, test := range []struct {
		flags stepRepairFlags
		want  string // the args, or the error
	}{
		{stepRepairFlags{}, ""},
		{stepRepairFlags{SkipStep: []string{"a", "parcel[0]/b"}, Rewind: []string{"c"}},
			`{"durable_repair":{"skip":["a","parcel[0]/b"],"rewind":["c"]}}`},
		{stepRepairFlags{SetStep: []string{"a={\"b\":\"=\"}", "c=null"}},
			`{"durable_repair":{"set":{"a":{"b":"="},"c":null}}}`},
		{stepRepairFlags{SetStep: []string{"a=b"}},
			`--set-step a=b: must be STEP=JSON, such as charge=7 or 'charge="by hand"'`},
		{stepRepairFlags{SetStep: []string{"a"}},
			`--set-step a: must be STEP=JSON, such as charge=7 or 'charge="by hand"'`},
		{stepRepairFlags{SetStep: []string{"a=1", "a=2"}}, "--set-step: step a has two values"},
	} {
		got, err := test.flags.stepArgs()
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}
