// Pages opened from the disk (file://) may not start a Worker, in which the search runs. There, a hidden frame runs the
// same script instead; what is posted to either side arrives as a message on the other.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.deliver(this, data);
      inside.importScripts = () => {};
      inside.__index = window.__index;
      this.ready = new Promise((loaded) => {
        const script = frame.contentDocument.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = loaded;
        frame.contentDocument.body.appendChild(script);
      });
      this.inside = inside;
      this.frame = frame;
    }

    deliver(to, data) {
      const message = new MessageEvent("message", { data });
      to.dispatchEvent(message);
      if (to === this && this.onmessage) this.onmessage(message);
    }

    postMessage(data) {
      this.ready.then(() => this.deliver(this.inside, data));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
